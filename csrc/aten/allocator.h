// What PyTorch's generic memory functions (torch.accelerator.memory_*) and torch.tpu's ask about device memory.
#pragma once

#include <cstdint>
#include <utility>

#include "base/error.h"

namespace torch_tpu::aten {

// Bytes of the device: the limit in force, else what the engine reports, else (embedded engine) the machine's memory.
// May open the engine.
Result<int64_t> total_memory(int device);
// {free, total} bytes.
Result<std::pair<int64_t, int64_t>> memory_info(int device);

}  // namespace torch_tpu::aten
