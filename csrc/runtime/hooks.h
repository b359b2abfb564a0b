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

// What threads have recorded for the device (-1: for any) and not run yet. Set by fuse/.
struct Recorder {
  void (*run)(int device);
  // The first failure that nobody has been told of, once.
  Status (*take_failure)(int device);
};
void set_recorder(const Recorder* recorder);
void run_recorded(int device);
Status take_failure(int device);

}  // namespace torch_tpu::runtime::hooks
