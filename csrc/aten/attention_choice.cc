// Which scaled_dot_product_attention a tpu tensor takes: one fused program, through PyTorch's overrideable backend.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/library.h>

namespace torch_tpu::aten {
namespace {

int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& mask, double, bool, std::optional<double>, bool) {
  const bool fused = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && query.is_floating_point() &&
                     query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type() &&
                     // The backward has no gradient for a mask that wants one with fewer than four dimensions.
                     !(mask.has_value() && mask->defined() && mask->requires_grad()) && query.numel() > 0 &&
                     key.numel() > 0;
  return static_cast<int64_t>(fused ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", &choose); }

}  // namespace
}  // namespace torch_tpu::aten

namespace at::native {
// PyTorch asks the stub, not the op, when it picks a backend (pytorch#162989).
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_tpu::aten::choose)
}  // namespace at::native
