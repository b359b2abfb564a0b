// Shape inference for ops whose meta kernel accepts what the CPU kernel refuses. The errors are the CPU kernels' own.
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>

#include "aten/infer.h"

namespace torch_tpu::aten {
namespace {

using torch::jit::Stack;

// (self, num_samples, replacement, generator)
void multinomial(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor();
  const int64_t samples = (*stack)[1].toInt();
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK((*stack)[2].toBool() || samples <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  // Categories are found by their position in a float32, as elsewhere in PyTorch.
  TORCH_CHECK(self.size(-1) <= int64_t{1} << 24, "number of categories cannot exceed 2^24");
  std::vector<int64_t> sizes;
  if (self.dim() == 2) sizes.push_back(self.size(0));
  sizes.push_back(samples);
  stack->clear();
  stack->emplace_back(at::empty(sizes, self.options().dtype(at::kLong)));
}

// (self, from, to, generator)
void uniform(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor();
  const double from = (*stack)[1].toDouble(), to = (*stack)[2].toDouble();
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  stack->clear();
  stack->emplace_back(self);
}

// (real, imag)
void complex(Stack* stack) {
  const at::Tensor real = (*stack)[0].toTensor(), imag = (*stack)[1].toTensor();
  const auto allowed = [](at::ScalarType t) { return t == at::kFloat || t == at::kDouble || t == at::kHalf; };
  TORCH_CHECK(allowed(real.scalar_type()) && allowed(imag.scalar_type()),
              "Expected both inputs to be Half, Float or Double tensors but got ", real.scalar_type(), " and ",
              imag.scalar_type());
  TORCH_CHECK(real.scalar_type() == imag.scalar_type(), "Expected object of scalar type ", real.scalar_type(),
              " but got scalar type ", imag.scalar_type(), " for second argument");
  at::Tensor result = elementwise({real, imag}, at::toComplexType(real.scalar_type()));
  stack->clear();
  stack->emplace_back(std::move(result));
}

// (self, mask, source)
void masked_scatter(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor(), mask = (*stack)[1].toTensor(), source = (*stack)[2].toTensor();
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter: expected self and source to have same dtypes but got", self.scalar_type(), " and ",
              source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  stack->clear();
  stack->emplace_back(self);
}

}  // namespace

const std::map<std::string, OwnInference>& sampling_inference() {
  static const std::map<std::string, OwnInference> table = {
      {"aten::multinomial", &multinomial},
      {"aten::uniform_", &uniform},
      {"aten::complex", &complex},
      {"aten::masked_scatter_", &masked_scatter},
  };
  return table;
}

}  // namespace torch_tpu::aten
