// Where the time of one eager op goes, for bench/01_dispatch.py.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace torch_tpu::aten {

// Nanoseconds per call of each part of `a + b` over 4 floats on device 0, the minimum over batches of `calls`:
// "at::add" the whole from C++; "execute" PJRT Execute, the result's destruction and the token; "key", "lookup",
// "wrap" (tensor, storage, slot, value) and "statistics" alone; "rest" what is left: dispatcher, boxing, locks.
std::vector<std::pair<std::string, double>> dispatch_parts(int calls);

}  // namespace torch_tpu::aten
