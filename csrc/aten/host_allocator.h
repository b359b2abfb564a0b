// Pinned host memory. The engine copies host memory on the way in, so "pinned" promises what PyTorch promises
// (is_pinned, page alignment, reuse), not a faster transfer.
#pragma once

namespace torch_tpu::aten {

// Does the pointer lie inside a live pinned block? Never throws.
bool is_pinned(const void* pointer);

}  // namespace torch_tpu::aten
