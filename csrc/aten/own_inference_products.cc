// Shape inference for products whose PyTorch meta functions are written in Python, or check less than the CPU's
// kernels: the texts are the CPU's.
#include <ATen/ExpandUtils.h>
#include <ATen/core/stack.h>
#include <ATen/ops/_softmax_meta_dispatch.h>
#include <ATen/ops/addmm_meta_dispatch.h>
#include <ATen/ops/baddbmm_meta_dispatch.h>
#include <ATen/ops/bmm_meta_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_meta_dispatch.h>

#include "aten/infer.h"

namespace torch_tpu::aten {
namespace {

using at::Tensor;
using torch::jit::Stack;

Tensor tensor(const Stack* stack, size_t i) { return (*stack)[i].toTensor(); }

void replace(Stack* stack, Tensor result) {
  stack->clear();
  stack->emplace_back(std::move(result));
}

void check_scalar_types(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "expected scalar type ", a.scalar_type(), " but found ",
              b.scalar_type());
}

void mm(Stack* stack) {
  const Tensor a = tensor(stack, 0), b = tensor(stack, 1);
  Tensor result = at::meta::mm(a, b);
  TORCH_CHECK(a.dtype() == b.dtype(), "expected m1 and m2 to have the same dtype, but got: ", a.dtype(),
              " != ", b.dtype());
  replace(stack, std::move(result));
}

void bmm(Stack* stack) {
  const Tensor a = tensor(stack, 0), b = tensor(stack, 1);
  Tensor result = at::meta::bmm(a, b);
  check_scalar_types(a, b);
  replace(stack, std::move(result));
}

void mv(Stack* stack) {
  const Tensor a = tensor(stack, 0), v = tensor(stack, 1);
  TORCH_CHECK(a.dim() == 2 && v.dim() == 1, "vector + matrix @ vector expected, got 1, ", a.dim(), ", ", v.dim());
  TORCH_CHECK(a.size(1) == v.size(0), "size mismatch, got input (", a.size(0), "), mat (", a.size(0), "x", a.size(1),
              "), vec (", v.size(0), ")");
  TORCH_CHECK(a.scalar_type() == v.scalar_type(), "addmv input tensors must have the same dtype, but got ",
              v.scalar_type(), ", ", a.scalar_type(), ", and ", v.scalar_type());
  replace(stack, at::empty({a.size(0)}, v.options()));
}

void dot(Stack* stack) {
  const Tensor a = tensor(stack, 0), b = tensor(stack, 1);
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "1D tensors expected, but got ", a.dim(), "D and ", b.dim(), "D tensors");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "dot : expected both vectors to have same dtype, but found ",
              a.scalar_type(), " and ", b.scalar_type());
  TORCH_CHECK(a.numel() == b.numel(), "inconsistent tensor size, expected tensor [", a.numel(), "] and src [",
              b.numel(), "] to have the same number of elements, but got ", a.numel(), " and ", b.numel(),
              " elements respectively");
  replace(stack, at::empty({}, a.options()));
}

// (self, mat1, mat2, beta, alpha)
void addmm(Stack* stack) {
  const Tensor self = tensor(stack, 0), a = tensor(stack, 1), b = tensor(stack, 2);
  Tensor result = at::meta::addmm(self, a, b, (*stack)[3].toScalar(), (*stack)[4].toScalar());
  if (self.sizes() != result.sizes()) self.expand(result.sizes());
  replace(stack, std::move(result));
}

void baddbmm(Stack* stack) {
  const Tensor self = tensor(stack, 0), a = tensor(stack, 1), b = tensor(stack, 2);
  Tensor result = at::meta::baddbmm(self, a, b, (*stack)[3].toScalar(), (*stack)[4].toScalar());
  check_scalar_types(a, b);
  replace(stack, std::move(result));
}

void addbmm(Stack* stack) {
  const Tensor self = tensor(stack, 0), a = tensor(stack, 1), b = tensor(stack, 2);
  TORCH_CHECK(a.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(b.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(a.size(0) == b.size(0), "batch1 and batch2 must have same number of batches, got ", a.size(0), " and ",
              b.size(0));
  TORCH_CHECK(a.size(2) == b.size(1), "Incompatible matrix sizes for bmm (", a.size(1), "x", a.size(2), " and ",
              b.size(1), "x", b.size(2), ")");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "self and mat2 must have the same dtype, but got ", a.scalar_type(),
              " and ", b.scalar_type());
  TORCH_CHECK(self.scalar_type() == a.scalar_type(), "self and batch1 must have the same dtype, but got ",
              self.scalar_type(), " and ", a.scalar_type());
  const std::vector<int64_t> sizes{a.size(1), b.size(2)};
  self.expand(sizes);
  replace(stack, at::empty(sizes, self.options()));
}

// (self, dim, half_to_float)
template <Tensor (*infer)(const Tensor&, int64_t, bool)>
void softmax(Stack* stack) {
  const Tensor self = tensor(stack, 0);
  const bool half_to_float = (*stack)[2].toBool();
  Tensor result = infer(self, (*stack)[1].toInt(), half_to_float);
  const auto type = self.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(type), "\"softmax_lastdim_kernel_impl\" not implemented for '", type,
                              "'");
  replace(stack, std::move(result));
}

// (x [T, N, I], h0 [N, H], c0, w_ih, w_hh, b_ih, b_hh, reverse, keep)
void lstm_layer(Stack* stack) {
  const Tensor x = tensor(stack, 0), h0 = tensor(stack, 1);
  const bool keep = (*stack)[8].toBool();
  const int64_t width = h0.size(1);
  auto over_time = [&](int64_t last) { return at::empty({x.size(0), h0.size(0), last}, x.options()); };
  stack->clear();
  stack->emplace_back(over_time(width));
  for (int i = 0; i < 2; ++i) stack->emplace_back(at::empty(h0.sizes(), h0.options()));
  stack->emplace_back(keep ? over_time(width * 4) : Tensor());
  stack->emplace_back(keep ? over_time(width) : Tensor());
}

// (grad_output?, grad_h?, grad_c?, x, h0, c0, w_ih, w_hh, gates, cells, reverse, mask): gradients of x, h0, c0, w_ih,
// w_hh and the two biases.
void lstm_layer_backward(Stack* stack) {
  const auto mask = (*stack)[11].toBoolList().vec();
  std::vector<Tensor> like;
  for (size_t i = 3; i < 8; ++i) like.push_back(tensor(stack, i));
  const int64_t gates = like[4].size(0);
  stack->clear();
  for (size_t i = 0; i < like.size(); ++i)
    stack->emplace_back(mask[i] ? at::empty(like[i].sizes(), like[i].options()) : Tensor());
  for (size_t i = 5; i < 7; ++i) stack->emplace_back(mask[i] ? at::empty({gates}, like[4].options()) : Tensor());
}

// (self)
void matrix_exp(Stack* stack) {
  const Tensor self = tensor(stack, 0);
  TORCH_CHECK(self.dim() >= 2, "linalg.matrix_exp: The input tensor A must have at least 2 dimensions.");
  TORCH_CHECK(self.size(-1) == self.size(-2), "linalg.matrix_exp: A must be batches of square matrices, but they are ",
              self.size(-2), " by ", self.size(-1), " matrices");
  TORCH_CHECK(self.is_floating_point() || self.is_complex(),
              "linalg.matrix_exp: Expected a floating point or complex tensor as input. Got ", self.scalar_type());
  stack->clear();
  stack->emplace_back(at::empty(self.sizes(), self.options()));
}

}  // namespace

const std::map<std::string, OwnInference>& product_inference() {
  static const std::map<std::string, OwnInference> table = {
      {"aten::mm", &mm},
      {"aten::bmm", &bmm},
      {"aten::mv", &mv},
      {"aten::dot", &dot},
      {"aten::vdot", &dot},
      {"aten::addmm", &addmm},
      {"aten::baddbmm", &baddbmm},
      {"aten::addbmm", &addbmm},
      {"aten::_softmax", &softmax<&at::meta::_softmax>},
      {"aten::linalg_matrix_exp", &matrix_exp},
      {"tpu::lstm_layer", &lstm_layer},
      {"tpu::lstm_layer_backward", &lstm_layer_backward},
  };
  return table;
}

}  // namespace torch_tpu::aten
