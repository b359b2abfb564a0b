// Lets `module.to("tpu")` change parameters in place, as it does for CUDA: the same Parameter objects, ties kept, and
// an optimizer made before the move keeps working.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace torch_tpu::aten {
namespace {

// Both sides must be plain strided TensorImpls: what Module.to swaps is their storage and metadata.
bool is_plain(const at::Tensor& tensor) {
  const auto type = tensor.device().type();
  return tensor.layout() == at::kStrided && (type == at::kCPU || type == at::kPrivateUse1) && !tensor.is_quantized() &&
         !tensor.is_mkldnn() && !tensor.is_nested();
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return is_plain(self) && is_plain(from);
}

// On PrivateUse1 alone: a pair without a tpu tensor keeps PyTorch's own answer.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

}  // namespace
}  // namespace torch_tpu::aten
