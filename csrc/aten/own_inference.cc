// Shape inference for ops that PyTorch gives no meta kernel, or only one in Python that costs a millisecond and imports
// torch._dynamo.
#include <ATen/AccumulateType.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/index_add_meta_dispatch.h>
#include <ATen/ops/index_reduce_meta_dispatch.h>
#include <ATen/ops/result_type.h>

#include <map>

#include "aten/infer.h"

namespace torch_tpu::aten {
namespace {

using torch::jit::Stack;

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups): shapes were checked by
// at::convolution before it chose this backend.
void convolution(Stack* stack) {
  const at::Tensor input = (*stack)[0].toTensor(), weight = (*stack)[1].toTensor();
  const auto stride = (*stack)[3].toDimVector(), padding = (*stack)[4].toDimVector(),
             dilation = (*stack)[5].toDimVector(), output_padding = (*stack)[7].toDimVector();
  const bool transposed = (*stack)[6].toBool();
  const int64_t groups = (*stack)[8].toInt();
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "expected scalar type ", input.scalar_type(), " but found ",
              weight.scalar_type());
  auto at = [](const at::DimVector& v, int64_t i, int64_t otherwise) {
    return v.empty() ? otherwise : v[v.size() == 1 ? 0 : i];
  };
  std::vector<int64_t> sizes{input.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (int64_t i = 0; i < input.dim() - 2; ++i) {
    const int64_t reach = at(dilation, i, 1) * (weight.size(i + 2) - 1) + 1;
    const int64_t n = input.size(i + 2), s = at(stride, i, 1), p = at(padding, i, 0);
    sizes.push_back(transposed ? (n - 1) * s - 2 * p + reach + at(output_padding, i, 0) : (n + 2 * p - reach) / s + 1);
  }
  const auto format = input.suggest_memory_format() == weight.suggest_memory_format() ? input.suggest_memory_format()
                                                                                      : at::MemoryFormat::Contiguous;
  stack->clear();
  stack->emplace_back(at::empty(sizes, input.options().memory_format(format)));
}

// (grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask)
void convolution_backward(Stack* stack) {
  const at::Tensor grad = (*stack)[0].toTensor();
  const at::Tensor input = (*stack)[1].toTensor();
  const at::Tensor weight = (*stack)[2].toTensor();
  const auto mask = (*stack)[9].toBoolList();
  stack->clear();
  stack->emplace_back(mask[0] ? dense_like(input, input.scalar_type()) : at::Tensor());
  stack->emplace_back(mask[1] ? dense_like(weight, weight.scalar_type()) : at::Tensor());
  stack->emplace_back(mask[2] ? at::empty({grad.size(1)}, grad.options()) : at::Tensor());
}

// A result like argument 0.
void like_first(Stack* stack) {
  const at::Tensor first = (*stack)[0].toTensor();
  stack->clear();
  stack->emplace_back(dense_like(first, first.scalar_type()));
}

// A result like argument 1 (gradients: grad, self, ...).
void like_second(Stack* stack) {
  const at::Tensor second = (*stack)[1].toTensor();
  stack->clear();
  stack->emplace_back(at::empty_like(second, at::MemoryFormat::Contiguous));
}

// A result like argument 2 (gradients: grad, output, data, ...).
void like_third(Stack* stack) {
  const at::Tensor third = (*stack)[2].toTensor();
  stack->clear();
  stack->emplace_back(at::empty_like(third, at::MemoryFormat::Contiguous));
}

// Results that are the written arguments themselves.
void nothing_fresh(Stack* stack) {
  const c10::IValue self = (*stack)[0];
  stack->clear();
  stack->push_back(self);
}

// No results at all.
void no_results(Stack* stack) { stack->clear(); }

// (input_gates, hidden_gates, cx, input_bias, hidden_bias) -> hy, cy, workspace. PyTorch's meta function needs biases.
void lstm_cell(Stack* stack) {
  const at::Tensor gates = (*stack)[0].toTensor(), cx = (*stack)[2].toTensor();
  stack->clear();
  for (int i = 0; i < 2; ++i) stack->emplace_back(at::empty(cx.sizes(), cx.options()));
  stack->emplace_back(at::empty(gates.sizes(), gates.options()));
}

// (input_gates, hidden_gates, hx, input_bias, hidden_bias)
void gru_cell(Stack* stack) {
  const at::Tensor hx = (*stack)[2].toTensor();
  stack->clear();
  stack->emplace_back(dense_like(hx, hx.scalar_type()));
  stack->emplace_back(at::empty({hx.size(0), hx.size(1) * 5}, hx.options()));
}

// (grad_hy, workspace, has_bias)
void gru_cell_backward(Stack* stack) {
  const at::Tensor grad = (*stack)[0].toTensor();
  const bool bias = (*stack)[2].toBool();
  const int64_t width = grad.size(1) * 3;
  stack->clear();
  for (int i = 0; i < 2; ++i) stack->emplace_back(at::empty({grad.size(0), width}, grad.options()));
  stack->emplace_back(dense_like(grad, grad.scalar_type()));
  for (int i = 0; i < 2; ++i) stack->emplace_back(bias ? at::empty({width}, grad.options()) : at::Tensor());
}

// (grad_hy?, grad_cy?, cx, cy, workspace, has_bias)
void lstm_cell_backward(Stack* stack) {
  const at::Tensor cx = (*stack)[2].toTensor();
  const bool bias = (*stack)[5].toBool();
  stack->clear();
  stack->emplace_back(at::empty({cx.size(0), cx.size(1) * 4}, cx.options()));
  stack->emplace_back(dense_like(cx, cx.scalar_type()));
  stack->emplace_back(bias ? at::empty({cx.size(1) * 4}, cx.options()) : at::Tensor());
}

// (input, running_mean, running_var, momentum)
void batch_norm_update_stats(Stack* stack) {
  const at::Tensor input = (*stack)[0].toTensor();
  const auto options = input.options().dtype(at::toAccumulateType(input.scalar_type(), c10::DeviceType::CUDA));
  stack->clear();
  for (int i = 0; i < 2; ++i) stack->emplace_back(at::empty({input.size(1)}, options));
}

// --- normalizations: PyTorch's meta kernels for them are Python decompositions ---

at::TensorOptions statistics_options(const at::Tensor& input) {
  const bool narrow = input.scalar_type() == at::kHalf || input.scalar_type() == at::kBFloat16;
  return input.options().dtype(narrow ? at::kFloat : input.scalar_type());
}

// A gradient of a parameter: the parameter's dtype where there is one.
at::Tensor parameter_gradient(bool wanted, at::IntArrayRef sizes, const at::Tensor& parameter,
                              const at::Tensor& input) {
  if (!wanted) return {};
  return at::empty(sizes, parameter.defined() ? parameter.options() : input.options());
}

at::Tensor optional_tensor(const c10::IValue& v) { return v.isNone() ? at::Tensor() : v.toTensor(); }

// (input, normalized_shape, weight, bias, eps)
void layer_norm(Stack* stack) {
  const at::Tensor input = (*stack)[0].toTensor();
  const auto shape = (*stack)[1].toDimVector();
  at::native::_check_layer_norm_inputs(input, shape, optional_tensor((*stack)[2]), optional_tensor((*stack)[3]));
  std::vector<int64_t> kept = input.sizes().vec();
  for (size_t i = kept.size() - shape.size(); i < kept.size(); ++i) kept[i] = 1;
  stack->clear();
  stack->emplace_back(at::empty_like(input, at::MemoryFormat::Contiguous));
  for (int i = 0; i < 2; ++i) stack->emplace_back(at::empty(kept, statistics_options(input)));
}

// (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
void layer_norm_backward(Stack* stack) {
  const at::Tensor input = (*stack)[1].toTensor();
  const auto shape = (*stack)[2].toDimVector();
  const at::Tensor weight = optional_tensor((*stack)[5]), bias = optional_tensor((*stack)[6]);
  const auto mask = (*stack)[7].toBoolList();
  const bool wanted[] = {mask[0], mask[1] && weight.defined(), mask[2] && bias.defined()};
  stack->clear();
  stack->emplace_back(wanted[0] ? at::empty_like(input, at::MemoryFormat::Contiguous) : at::Tensor());
  stack->emplace_back(parameter_gradient(wanted[1], shape, weight, input));
  stack->emplace_back(parameter_gradient(wanted[2], shape, bias, input));
}

// (grad_out, input, normalized_shape, rstd, weight, output_mask)
void rms_norm_backward(Stack* stack) {
  const at::Tensor input = (*stack)[1].toTensor();
  const auto shape = (*stack)[2].toDimVector();
  const at::Tensor weight = optional_tensor((*stack)[4]);
  const auto mask = (*stack)[5].toBoolList();
  const bool wanted[] = {mask[0], mask[1] && weight.defined()};
  stack->clear();
  stack->emplace_back(wanted[0] ? at::empty_like(input, at::MemoryFormat::Contiguous) : at::Tensor());
  stack->emplace_back(parameter_gradient(wanted[1], shape, weight, input));
}

// (input, weight, bias, [running_mean, running_var,] training, ...)
void batch_norm_like(Stack* stack, bool training, int64_t extra) {
  const at::Tensor input = (*stack)[0].toTensor();
  stack->clear();
  stack->emplace_back(dense_like(input, input.scalar_type()));
  for (int i = 0; i < 2; ++i) stack->emplace_back(at::empty({training ? input.size(1) : 0}, statistics_options(input)));
  for (int64_t i = 0; i < extra; ++i) stack->emplace_back(at::empty({0}, input.options().dtype(at::kByte)));
}
void batch_norm(Stack* stack) { batch_norm_like(stack, (*stack)[5].toBool(), 0); }
void batch_norm_no_stats(Stack* stack) { batch_norm_like(stack, (*stack)[3].toBool(), 0); }
void batch_norm_with_update(Stack* stack) { batch_norm_like(stack, true, 1); }

// (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask, ...)
void batch_norm_backward(Stack* stack) {
  const at::Tensor input = (*stack)[1].toTensor();
  const at::Tensor weight = optional_tensor((*stack)[2]);
  const auto mask = (*stack)[9].toBoolList();
  const bool wanted[] = {mask[0], mask[1], mask[2]};
  stack->clear();
  stack->emplace_back(wanted[0] ? dense_like(input, input.scalar_type()) : at::Tensor());
  for (int i = 1; i < 3; ++i) stack->emplace_back(parameter_gradient(wanted[i], {input.size(1)}, weight, input));
}

// (input, weight, bias, N, C, HxW, group, eps)
void group_norm(Stack* stack) {
  const at::Tensor input = (*stack)[0].toTensor();
  const int64_t n = (*stack)[3].toInt(), groups = (*stack)[6].toInt();
  stack->clear();
  stack->emplace_back(at::empty_like(input, at::MemoryFormat::Contiguous));
  for (int i = 0; i < 2; ++i) stack->emplace_back(at::empty({n, groups}, statistics_options(input)));
}

// (grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
void group_norm_backward(Stack* stack) {
  const at::Tensor input = (*stack)[1].toTensor();
  const at::Tensor weight = optional_tensor((*stack)[4]);
  const int64_t channels = (*stack)[6].toInt();
  const auto mask = (*stack)[9].toBoolList();
  const bool wanted[] = {mask[0], mask[1], mask[2]};
  stack->clear();
  stack->emplace_back(wanted[0] ? at::empty_like(input, at::MemoryFormat::Contiguous) : at::Tensor());
  for (int i = 1; i < 3; ++i) stack->emplace_back(parameter_gradient(wanted[i], {channels}, weight, input));
}

// (input, p, train)
void dropout(Stack* stack) {
  const at::Tensor input = (*stack)[0].toTensor();
  stack->clear();
  stack->emplace_back(dense_like(input, input.scalar_type()));
  stack->emplace_back(dense_like(input, at::kBool));
}

// --- weight norm ---

// (v, g, dim) -> w, norms
void weight_norm(Stack* stack) {
  const at::Tensor v = (*stack)[0].toTensor(), g = (*stack)[1].toTensor();
  const bool narrow = g.scalar_type() == at::kBFloat16;
  stack->clear();
  stack->emplace_back(dense_like(v, v.scalar_type()));
  stack->emplace_back(dense_like(g, narrow ? at::kFloat : g.scalar_type()));
}

// (grad_w, saved_v, saved_g, saved_norms, dim) -> grad_v, grad_g
void weight_norm_backward(Stack* stack) {
  const at::Tensor v = (*stack)[1].toTensor(), g = (*stack)[2].toTensor();
  stack->clear();
  stack->emplace_back(dense_like(v, v.scalar_type()));
  stack->emplace_back(dense_like(g, g.scalar_type()));
}

// --- small ops ---

// (condition, self, other)
void where(Stack* stack) {
  const at::Tensor condition = (*stack)[0].toTensor(), self = (*stack)[1].toTensor(), other = (*stack)[2].toTensor();
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ", condition.scalar_type());
  stack->clear();
  stack->emplace_back(elementwise({condition, self, other}, at::result_type(self, other)));
}

// (self, mask, value)
void masked_fill(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor(), mask = (*stack)[1].toTensor();
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  if (const c10::IValue& value = (*stack)[2]; value.isTensor())
    TORCH_CHECK(value.toTensor().dim() == 0,
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ", value.toTensor().dim(),
                " dimension(s).");
  stack->clear();
  stack->emplace_back(elementwise({self, mask}, self.scalar_type()));
}

void scalar_like_first(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor();
  TORCH_CHECK(self.numel() > 0,
              "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
              "the 'dim' argument.");
  stack->clear();
  stack->emplace_back(at::empty({}, self.options()));
}

// (weight, indices, ...)
void embedding(Stack* stack) {
  const at::Tensor weight = (*stack)[0].toTensor(), indices = (*stack)[1].toTensor();
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  at::checkScalarTypes("embedding", at::TensorArg(indices, "indices", 1), {at::kLong, at::kInt});
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  stack->clear();
  stack->emplace_back(at::empty(sizes, weight.options()));
}

// (grad, indices, num_weights, padding_idx, scale_grad_by_freq)
void embedding_dense_backward(Stack* stack) {
  const at::Tensor grad = (*stack)[0].toTensor();
  const int64_t weights = (*stack)[2].toInt();
  stack->clear();
  stack->emplace_back(at::empty({weights, grad.size(-1)}, grad.options()));
}

// (self, dim, index, source, alpha): PyTorch's function looks at the first slice of source, which an empty one lacks.
void index_add(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor(), index = (*stack)[2].toTensor(), source = (*stack)[3].toTensor();
  const int64_t dim = (*stack)[1].toInt();
  const at::Scalar alpha = (*stack)[4].toScalar();
  stack->clear();
  stack->emplace_back(source.numel() == 0 ? dense_like(self, self.scalar_type())
                                          : at::meta::index_add(self, dim, index, source, alpha));
}

// (self, dim, index, source, reduce, include_self)
void index_reduce(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor(), index = (*stack)[2].toTensor(), source = (*stack)[3].toTensor();
  const int64_t dim = (*stack)[1].toInt();
  const std::string reduce = (*stack)[4].toStringRef();
  const bool include_self = (*stack)[5].toBool();
  stack->clear();
  stack->emplace_back(source.numel() == 0 ? dense_like(self, self.scalar_type())
                                          : at::meta::index_reduce(self, dim, index, source, reduce, include_self));
}

// isin of a number: PyTorch's meta function says [0], its CPU kernel resizes to 0-d.
void zero_dim_bool(Stack* stack) {
  const at::Tensor tests = (*stack)[1].toTensor();
  stack->clear();
  stack->emplace_back(at::empty({}, tests.options().dtype(at::kBool)));
}

// (self) -> reflectors with their diagonal and upper triangle, tau
void geqrf(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor();
  TORCH_CHECK(self.dim() >= 2, "torch.geqrf: input must have at least 2 dimensions.");
  std::vector<int64_t> tau(self.sizes().begin(), self.sizes().end() - 2);
  tau.push_back(std::min(self.size(-2), self.size(-1)));
  stack->clear();
  stack->emplace_back(at::empty(self.mT().sizes(), self.options()).mT());
  stack->emplace_back(at::empty(tau, self.options()));
}

// (log_probs [T, N, C], targets [N, S], ...) -> neg_log_likelihood [N], log_alpha [N, T, 2 S + 1]
void ctc_loss(Stack* stack) {
  const at::Tensor probs = (*stack)[0].toTensor(), targets = (*stack)[1].toTensor();
  stack->clear();
  stack->emplace_back(at::empty({probs.size(1)}, probs.options()));
  stack->emplace_back(at::empty({probs.size(1), probs.size(0), 2 * targets.size(-1) + 1}, probs.options()));
}

// (grad, input_sizes, ...)
void with_sizes(Stack* stack) {
  const at::Tensor grad = (*stack)[0].toTensor();
  const auto sizes = (*stack)[1].toDimVector();
  stack->clear();
  stack->emplace_back(at::empty(sizes, grad.options()));
}

}  // namespace

// PyTorch's own strides for an elementwise result.
at::Tensor elementwise(at::TensorList operands, at::ScalarType dtype) {
  at::TensorIteratorConfig config;
  config.add_owned_output(at::Tensor());
  for (const at::Tensor& t : operands) config.add_const_input(t);
  config.check_all_same_dtype(false).check_all_same_device(false).declare_static_dtype_and_device(dtype, at::kMeta);
  return config.build().output();
}

at::Tensor dense_like(const at::Tensor& t, at::ScalarType dtype) {
  const bool keep = t.is_non_overlapping_and_dense();
  const std::vector<int64_t> strides = keep ? t.strides().vec() : at::infer_dense_strides(t.sizes(), t.strides());
  return at::empty_strided(t.sizes(), strides, t.options().dtype(dtype));
}

OwnInference own_inference(const std::string& functional_name) {
  static const std::map<std::string, OwnInference> table = {
      {"aten::convolution_overrideable", &convolution},
      {"aten::convolution_backward_overrideable", &convolution_backward},
      {"aten::where.self", &where},
      {"aten::masked_fill.Scalar", &masked_fill},
      {"aten::masked_fill.Tensor", &masked_fill},
      {"aten::fill.Scalar", &like_first},
      {"aten::fill.Tensor", &like_first},
      {"aten::zero", &like_first},
      {"aten::relu", &like_first},
      {"aten::max", &scalar_like_first},
      {"aten::min", &scalar_like_first},
      {"aten::embedding", &embedding},
      {"aten::embedding_dense_backward", &embedding_dense_backward},
      {"aten::index_add", &index_add},
      {"aten::index_reduce", &index_reduce},
      {"aten::isin.Scalar_Tensor", &zero_dim_bool},
      {"aten::fractional_max_pool3d_backward", &like_second},
      {"aten::_segment_reduce_backward", &like_third},
      {"aten::geqrf", &geqrf},
      {"aten::_ctc_loss.Tensor", &ctc_loss},
      {"aten::_ctc_loss_backward.Tensor", &like_second},
      {"aten::slice_backward", &with_sizes},
      {"aten::select_backward", &with_sizes},
      {"aten::diagonal_backward", &with_sizes},
      {"aten::native_layer_norm", &layer_norm},
      {"aten::native_layer_norm_backward", &layer_norm_backward},
      {"aten::_fused_rms_norm_backward", &rms_norm_backward},
      {"aten::native_batch_norm", &batch_norm},
      {"aten::_native_batch_norm_legit", &batch_norm},
      {"aten::_native_batch_norm_legit.no_stats", &batch_norm_no_stats},
      {"aten::_batch_norm_with_update", &batch_norm_with_update},
      {"aten::native_batch_norm_backward", &batch_norm_backward},
      {"aten::batch_norm_backward", &batch_norm_backward},
      {"aten::native_group_norm", &group_norm},
      {"aten::native_group_norm_backward", &group_norm_backward},
      {"aten::native_dropout", &dropout},
      {"aten::_weight_norm_interface", &weight_norm},
      {"aten::_weight_norm_interface_backward", &weight_norm_backward},
      {"aten::_thnn_fused_lstm_cell", &lstm_cell},
      {"aten::_thnn_fused_gru_cell", &gru_cell},
      {"aten::_thnn_fused_gru_cell_backward", &gru_cell_backward},
      {"aten::_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward},
      {"aten::batch_norm_update_stats", &batch_norm_update_stats},
      {"aten::_standard_gamma", &like_first},
      {"aten::multi_margin_loss_backward", &like_second},
      {"aten::multilabel_margin_loss_backward", &like_second},
      {"aten::poisson", &like_first},
      {"aten::binomial", &like_first},
      {"aten::random_", &nothing_fresh},
      {"aten::random_.from", &nothing_fresh},
      {"aten::random_.to", &nothing_fresh},
      {"aten::put_", &nothing_fresh},
      {"aten::_sample_dirichlet", &like_first},
      {"aten::glu_jvp", &like_first},
      {"aten::mish_backward", &like_first},
      {"aten::_cummax_helper", &no_results},
      {"aten::_cummin_helper", &no_results},
  };
  for (const auto* part :
       {&table, &counting_inference(), &indexing_inference(), &product_inference(), &sampling_inference()}) {
    if (auto found = part->find(functional_name); found != part->end()) return found->second;
  }
  return nullptr;
}

}  // namespace torch_tpu::aten
