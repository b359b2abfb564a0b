// Which scaled_dot_product_attention a tpu tensor takes: one fused program, through PyTorch's overrideable backend.
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/library.h>

namespace torch_tpu::aten {
namespace {

// Sizes that the fused rule takes; PyTorch's composed path broadcasts the others, or says what is wrong with them.
// Sizes may be symbols while Dynamo traces.
bool sizes_fit(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool grouped) {
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return false;
  const c10::SymIntArrayRef q = query.sym_sizes(), k = key.sym_sizes(), v = value.sym_sizes();
  if (query.sym_numel() == 0 || key.sym_numel() == 0) return false;
  const bool heads = grouped ? q[1] % k[1] == 0 : q[1] == k[1];
  return heads && k[1] == v[1] && q[3] == k[3] && q[0] == k[0] && k[0] == v[0] && k[2] == v[2];
}

int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& mask, double, bool, std::optional<double>, bool grouped) {
  // The backward has no gradient for a mask that wants one with fewer than four dimensions.
  const bool learnt_mask = mask.has_value() && mask->defined() && mask->requires_grad();
  const bool fused = sizes_fit(query, key, value, grouped) && query.is_floating_point() &&
                     query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type() &&
                     !learnt_mask;
  return static_cast<int64_t>(fused ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", &choose); }

}  // namespace
}  // namespace torch_tpu::aten

namespace at::native {
// PyTorch asks the stub, not the op, when it picks a backend (pytorch#162989).
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_tpu::aten::choose)
}  // namespace at::native
