// What lower rooms need from above, as registered functions.
#pragma once

#include <string>

#include "base/error.h"

namespace torch_tpu::runtime::hooks {

// The user's current Python line, "file.py:12"; takes the GIL. Empty when there is none. Set by python/.
using CallSite = std::string (*)();
void set_call_site(CallSite fn);
std::string call_site();

// Which backward pass this thread is working for; -1 outside of one. Set by aten/.
using BackwardPass = int64_t (*)();
void set_backward_pass(BackwardPass fn);
int64_t backward_pass();

// Runs what any thread has recorded for the device (-1: for any) and not run yet; the first failure. Set by fuse/.
using Flush = Status (*)(int device);
void set_flush(Flush fn);
Status flush(int device);

}  // namespace torch_tpu::runtime::hooks
