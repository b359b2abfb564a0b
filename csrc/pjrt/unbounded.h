// A look at program text for what one plugin answers with an abort.
#pragma once

#include <string_view>

namespace torch_tpu::pjrt {

// True if a tensor type of the MLIR text has a dimension `?` and no `bounds<...>`.
bool has_unbounded_dimension(std::string_view mlir);

}  // namespace torch_tpu::pjrt
