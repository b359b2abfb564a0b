// What lower rooms need from above, as registered functions.
#pragma once

#include <string>

namespace torch_tpu::runtime::hooks {

// The user's current Python line, "file.py:12"; takes the GIL. Empty when there is none. Set by python/.
using CallSite = std::string (*)();
void set_call_site(CallSite fn);
std::string call_site();

}  // namespace torch_tpu::runtime::hooks
