#include "pjrt/unbounded.h"

namespace torch_tpu::pjrt {

bool has_unbounded_dimension(std::string_view mlir) {
  constexpr std::string_view kTensor = "tensor<";
  // Looking for the rare character first keeps this free for ordinary programs.
  if (mlir.find('?') == std::string_view::npos) return false;
  for (size_t at = mlir.find(kTensor); at != std::string_view::npos; at = mlir.find(kTensor, at)) {
    at += kTensor.size();
    size_t end = at;
    for (int depth = 1; end < mlir.size(); ++end) {
      depth += (mlir[end] == '<') - (mlir[end] == '>');
      if (depth == 0) break;
    }
    const std::string_view type = mlir.substr(at, end - at);
    // Dimensions come first: "?x4xf32, #stablehlo.bounds<8, ?>" has `?` after them too.
    const std::string_view dimensions = type.substr(0, type.find(','));
    if (dimensions.find('?') != std::string_view::npos && type.find("bounds<") == std::string_view::npos) return true;
  }
  return false;
}

}  // namespace torch_tpu::pjrt
