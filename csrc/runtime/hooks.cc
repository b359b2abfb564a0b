#include "runtime/hooks.h"

#include <atomic>

namespace torch_tpu::runtime::hooks {
namespace {
std::atomic<CallSite> call_site_hook{nullptr};
std::atomic<BackwardPass> backward_pass_hook{nullptr};
std::atomic<const Recorder*> recorder_hook{nullptr};
}  // namespace

void set_call_site(CallSite fn) { call_site_hook.store(fn, std::memory_order_release); }

std::string call_site() {
  CallSite fn = call_site_hook.load(std::memory_order_acquire);
  return fn ? fn() : std::string();
}

void set_backward_pass(BackwardPass fn) { backward_pass_hook.store(fn, std::memory_order_release); }

int64_t backward_pass() {
  BackwardPass fn = backward_pass_hook.load(std::memory_order_acquire);
  return fn ? fn() : -1;
}

void set_recorder(const Recorder* recorder) { recorder_hook.store(recorder, std::memory_order_release); }

void run_recorded(int device) {
  if (const Recorder* recorder = recorder_hook.load(std::memory_order_acquire)) recorder->run(device);
}

Status take_failure(int device) {
  const Recorder* recorder = recorder_hook.load(std::memory_order_acquire);
  return recorder ? recorder->take_failure(device) : Status();
}

}  // namespace torch_tpu::runtime::hooks
