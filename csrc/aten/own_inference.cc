// Shape inference for ops that PyTorch gives no meta kernel.
#include <ATen/AccumulateType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <map>

#include "aten/infer.h"

namespace torch_tpu::aten {
namespace {

using torch::jit::Stack;

void call(const char* name, Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
}

// convolution_overrideable has convolution's own arguments.
void convolution(Stack* stack) { call("aten::convolution", stack); }

// (grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask)
void convolution_backward(Stack* stack) {
  const at::Tensor grad = (*stack)[0].toTensor();
  const at::Tensor input = (*stack)[1].toTensor();
  const at::Tensor weight = (*stack)[2].toTensor();
  const auto mask = (*stack)[9].toBoolList();
  stack->clear();
  stack->emplace_back(mask[0] ? at::empty_like(input) : at::Tensor());
  stack->emplace_back(mask[1] ? at::empty_like(weight) : at::Tensor());
  stack->emplace_back(mask[2] ? at::empty({grad.size(1)}, grad.options()) : at::Tensor());
}

// A result like argument 0.
void like_first(Stack* stack) {
  const at::Tensor first = (*stack)[0].toTensor();
  stack->clear();
  stack->emplace_back(at::empty_like(first));
}

// A result like argument 1 (gradients: grad, self, ...).
void like_second(Stack* stack) {
  const at::Tensor second = (*stack)[1].toTensor();
  stack->clear();
  stack->emplace_back(at::empty_like(second, at::MemoryFormat::Contiguous));
}

// Results that are the written arguments themselves.
void nothing_fresh(Stack* stack) {
  const c10::IValue self = (*stack)[0];
  stack->clear();
  stack->push_back(self);
}

// No results at all.
void no_results(Stack* stack) { stack->clear(); }

// (input_gates, hidden_gates, hx, input_bias, hidden_bias)
void gru_cell(Stack* stack) {
  const at::Tensor hx = (*stack)[2].toTensor();
  stack->clear();
  stack->emplace_back(at::empty_like(hx));
  stack->emplace_back(at::empty({hx.size(0), hx.size(1) * 5}, hx.options()));
}

// (grad_hy, workspace, has_bias)
void gru_cell_backward(Stack* stack) {
  const at::Tensor grad = (*stack)[0].toTensor();
  const bool bias = (*stack)[2].toBool();
  const int64_t width = grad.size(1) * 3;
  stack->clear();
  for (int i = 0; i < 2; ++i) stack->emplace_back(at::empty({grad.size(0), width}, grad.options()));
  stack->emplace_back(at::empty_like(grad));
  for (int i = 0; i < 2; ++i) stack->emplace_back(bias ? at::empty({width}, grad.options()) : at::Tensor());
}

// (grad_hy?, grad_cy?, cx, cy, workspace, has_bias)
void lstm_cell_backward(Stack* stack) {
  const at::Tensor cx = (*stack)[2].toTensor();
  const bool bias = (*stack)[5].toBool();
  stack->clear();
  stack->emplace_back(at::empty({cx.size(0), cx.size(1) * 4}, cx.options()));
  stack->emplace_back(at::empty_like(cx));
  stack->emplace_back(bias ? at::empty({cx.size(1) * 4}, cx.options()) : at::Tensor());
}

// (input, running_mean, running_var, momentum)
void batch_norm_update_stats(Stack* stack) {
  const at::Tensor input = (*stack)[0].toTensor();
  const auto options = input.options().dtype(at::toAccumulateType(input.scalar_type(), c10::DeviceType::CUDA));
  stack->clear();
  for (int i = 0; i < 2; ++i) stack->emplace_back(at::empty({input.size(1)}, options));
}

}  // namespace

OwnInference own_inference(const std::string& functional_name) {
  static const std::map<std::string, OwnInference> table = {
      {"aten::convolution_overrideable", &convolution},
      {"aten::convolution_backward_overrideable", &convolution_backward},
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
  auto found = table.find(functional_name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace torch_tpu::aten
