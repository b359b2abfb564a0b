#include "fuse/step.h"

#include <atomic>

#include "runtime/memory.h"
#include "runtime/statistics.h"
#include "runtime/stream.h"

namespace torch_tpu::fuse {

uint64_t next_step_id() {
  static std::atomic<uint64_t> id{1};
  return id.fetch_add(1, std::memory_order_relaxed);
}

Status launch(const Launch& launch, std::span<PJRT_Buffer*> outputs) {
  if (Status status = runtime::admit(launch.device, launch.bytes, launch.name); !status.ok()) return status;
  const store::Program& program = store::current(launch.program);
  pjrt::Executable::Call call;
  call.arguments = launch.arguments.data();
  call.argument_count = launch.arguments.size();
  call.non_donatable = launch.kept.data();
  call.non_donatable_count = launch.kept.size();
  call.device = launch.device;
  call.want_completion = runtime::needs_token(launch.device, program.runs_inline);
  auto event = program.executable.execute(call, outputs.data(), outputs.size());
  if (!event.ok() && event.error().code == ErrorCode::kOutOfMemory) {
    runtime::run_reclaimers();
    if (Status status = runtime::wait_for_submissions(launch.device); !status.ok()) return status;
    event = program.executable.execute(call, outputs.data(), outputs.size());
  }
  if (!event.ok()) {
    if (event.error().code == ErrorCode::kOutOfMemory)
      return runtime::out_of_memory(launch.device, launch.bytes, launch.name);
    return Error{event.error().code, std::string(launch.name) + ": " + event.error().message};
  }
  ++runtime::totals().executions;
  if (event.value()) runtime::leave_token(launch.device, event.take());
  return {};
}

}  // namespace torch_tpu::fuse
