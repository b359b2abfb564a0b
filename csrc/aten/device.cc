#include "aten/device.h"

#include <c10/util/Exception.h>

#include "aten/storage.h"
#include "runtime/hooks.h"
#include "runtime/stream.h"

namespace torch_tpu::aten {

int device_index(c10::DeviceIndex index) {
  if (index < 0) return runtime::current_device();
  const int count = runtime::Engine::device_count();
  if (index < count) return index;
  // No device at all, or a forked child: the engine says why.
  if (count == 0) check(runtime::Engine::get().ok() ? Status() : Status(runtime::Engine::get().error()));
  TORCH_CHECK(false, "tpu: device index out of range, got <tpu:", static_cast<int>(index),
              ">, expected <tpu:0> to <tpu:", count - 1, ">");
}

runtime::Engine& engine() { return *take(runtime::Engine::get()); }

void run_recorded(int device) {
  if (!pjrt::abandoned()) runtime::hooks::run_recorded(device);
}

}  // namespace torch_tpu::aten
