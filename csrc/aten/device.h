// Device indices at the PyTorch edge: -1 means the current device, and an index must exist.
#pragma once

#include <c10/core/Device.h>

#include "runtime/engine.h"

namespace torch_tpu::aten {

// The index to use for `device`, whose own index may be -1 (current device). Opens nothing. Raises RuntimeError for an
// index that does not exist, and the engine's own sentence where there is no device at all.
int device_index(c10::DeviceIndex index);
inline int device_index(const c10::Device& device) { return device_index(device.index()); }

inline c10::Device make_device(int index) {
  return c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index));
}

// Runs what is recorded for the device (of all, -1) and not run yet. A failure is told by whoever reads the values.
void run_recorded(int device);

// The engine, opened on first use. Raises RuntimeError with the engine's sentence when it cannot be opened.
runtime::Engine& engine();

}  // namespace torch_tpu::aten
