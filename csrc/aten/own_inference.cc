// Shape inference for ops that PyTorch gives no meta kernel.
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

// Results that are the written arguments themselves.
void nothing_fresh(Stack* stack) {
  const c10::IValue self = (*stack)[0];
  stack->clear();
  stack->push_back(self);
}

}  // namespace

OwnInference own_inference(const std::string& functional_name) {
  static const std::map<std::string, OwnInference> table = {
      {"aten::convolution_overrideable", &convolution},
      {"aten::convolution_backward_overrideable", &convolution_backward},
      {"aten::_standard_gamma", &like_first},
      {"aten::poisson", &like_first},
      {"aten::binomial", &like_first},
      {"aten::random_", &nothing_fresh},
      {"aten::random_.from", &nothing_fresh},
      {"aten::random_.to", &nothing_fresh},
      {"aten::put_", &nothing_fresh},
  };
  auto found = table.find(functional_name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace torch_tpu::aten
