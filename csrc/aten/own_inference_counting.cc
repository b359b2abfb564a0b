// Shape inference for histograms and fake quantization, and the argument errors of both, which PyTorch raises in its
// CPU and CUDA kernels.
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <map>

#include "aten/infer.h"

namespace torch_tpu::aten {
namespace {

using at::Tensor;
using torch::jit::Stack;

Tensor tensor(const Stack* stack, size_t i) { return (*stack)[i].toTensor(); }

// --- fake quantization ---

void check_float(const char* name, const Tensor& self) {
  TORCH_CHECK(self.is_floating_point(), name, ": expected a floating point tensor, got ", self.scalar_type());
}

// output, mask
void quantized(Stack* stack) {
  const Tensor self = tensor(stack, 0);
  stack->clear();
  stack->emplace_back(dense_like(self, self.scalar_type()));
  stack->emplace_back(dense_like(self, at::kBool));
}

// (self, scale, zero_point, quant_min, quant_max)
void fake_quantize_per_tensor(Stack* stack) {
  const int64_t zero_point = (*stack)[2].toInt(), low = (*stack)[3].toInt(), high = (*stack)[4].toInt();
  check_float("fake_quantize_per_tensor_affine", tensor(stack, 0));
  TORCH_CHECK(low <= high, "`quant_min` should be less than or equal to `quant_max`.");
  TORCH_CHECK(zero_point >= low && zero_point <= high, "`zero_point` must be between `quant_min` and `quant_max`.");
  quantized(stack);
}

// (self, scale, zero_point, fake_quant_enabled, quant_min, quant_max)
void fake_quantize_per_tensor_of_tensors(Stack* stack) {
  check_float("fake_quantize_per_tensor_affine", tensor(stack, 0));
  TORCH_CHECK((*stack)[4].toInt() <= (*stack)[5].toInt(), "`quant_min` should be less than or equal to `quant_max`.");
  for (size_t i = 1; i < 4; ++i)
    TORCH_CHECK(tensor(stack, i).numel() == 1,
                "fake_quantize_per_tensor_affine: scale, zero_point and fake_quant_enabled must have one element, got ",
                tensor(stack, i).sizes());
  quantized(stack);
}

// (self, scale, zero_point, axis, quant_min, quant_max)
void fake_quantize_per_channel(Stack* stack) {
  const Tensor self = tensor(stack, 0), scale = tensor(stack, 1), zero_point = tensor(stack, 2);
  const int64_t axis = (*stack)[3].toInt();
  check_float("fake_quantize_per_channel_affine", self);
  TORCH_CHECK(scale.scalar_type() == at::kFloat, "Scale must be Float, found ", scale.scalar_type());
  TORCH_CHECK(zero_point.scalar_type() == at::kInt || zero_point.scalar_type() == at::kFloat ||
                  zero_point.scalar_type() == at::kHalf,
              "Zero-point must be Int32, Float or Half, found ", zero_point.scalar_type());
  TORCH_CHECK(scale.dim() == 1, "scale should be a 1-D tensor");
  TORCH_CHECK(zero_point.dim() == 1, "zero point should be a 1-D tensor");
  TORCH_CHECK(scale.numel() == zero_point.numel(), "scale and zero-point need to have the same dimensions");
  TORCH_CHECK(axis >= 0 && axis < self.dim(), "`axis` must be between 0 and number of dimensions of input");
  TORCH_CHECK(scale.numel() == self.size(axis),
              "dimensions of scale and zero-point are not consistent with input tensor");
  TORCH_CHECK((*stack)[4].toInt() <= (*stack)[5].toInt(), "`quant_min` should be less than or equal to `quant_max`.");
  quantized(stack);
}

// --- histograms ---

void check_weight(const char* name, const Tensor& self, at::IntArrayRef elements, const c10::IValue& weight) {
  if (weight.isNone()) return;
  TORCH_CHECK(
      weight.toTensor().sizes() == elements, name,
      ": if weight tensor is provided it should have the same shape as the input tensor excluding its innermost "
      "dimension, but got input with shape ",
      self.sizes(), " and weight with shape ", weight.toTensor().sizes());
  TORCH_CHECK(weight.toTensor().scalar_type() == self.scalar_type(), name,
              ": if weight tensor is provided, input tensor and weight tensor should have the same dtype, but got "
              "input ",
              self.scalar_type(), ", and weight ", weight.toTensor().scalar_type());
}

void check_counts(const char* name, c10::ArrayRef<int64_t> bins, const c10::IValue& range) {
  for (int64_t n : bins) TORCH_CHECK(n > 0, name, ": bins must be > 0, but got ", n);
  if (range.isNone()) return;
  const std::vector<double> ends = range.toDoubleVector();
  TORCH_CHECK(ends.size() == 2 * bins.size(), name, ": for ", bins.size(), " dimensions, expected ", 2 * bins.size(),
              " values of range, got ", ends.size());
  for (size_t i = 0; i < ends.size(); i += 2) {
    TORCH_CHECK(std::isfinite(ends[i]) && std::isfinite(ends[i + 1]), name, ": dimension ", i / 2, "'s range [",
                ends[i], ", ", ends[i + 1], "] is not finite");
    TORCH_CHECK(ends[i] <= ends[i + 1], name, ": min should not exceed max, but got min ", ends[i], " max ",
                ends[i + 1], " for dimension ", i / 2);
  }
}

void check_edges(const char* name, const Tensor& self, const Tensor& edges) {
  TORCH_CHECK(edges.dim() == 1 && edges.numel() > 1, name,
              ": bins tensor should have one dimension and two or more "
              "elements, got shape ",
              edges.sizes());
  TORCH_CHECK(edges.scalar_type() == self.scalar_type(), name,
              ": input tensor and bins tensors should have the same dtype, but got input with dtype ",
              self.scalar_type(), " and bins with dtype ", edges.scalar_type());
}

at::IntArrayRef points(const Tensor& self, const char* name, size_t dimensions) {
  TORCH_CHECK(self.dim() >= 2, name, ": input tensor should have at least 2 dimensions, but got ", self.dim());
  TORCH_CHECK(self.size(-1) == static_cast<int64_t>(dimensions), name, ": expected ", self.size(-1),
              " sequences of bin edges for the last dimension of the input, got ", dimensions);
  return self.sizes().slice(0, self.dim() - 1);
}

// (self, bins, range, weight, density) -> hist, bin_edges
void histogram_of_count(Stack* stack) {
  const Tensor self = tensor(stack, 0);
  const int64_t bins = (*stack)[1].toInt();
  check_counts("torch.histogram", bins, (*stack)[2]);
  check_weight("torch.histogram", self, self.sizes(), (*stack)[3]);
  stack->clear();
  stack->emplace_back(at::empty({bins}, self.options()));
  stack->emplace_back(at::empty({bins + 1}, self.options()));
}

// (self, bins, weight, density) -> hist, bin_edges
void histogram_of_edges(Stack* stack) {
  const Tensor self = tensor(stack, 0), edges = tensor(stack, 1);
  check_edges("torch.histogram", self, edges);
  check_weight("torch.histogram", self, self.sizes(), (*stack)[2]);
  stack->clear();
  stack->emplace_back(at::empty({edges.numel() - 1}, self.options()));
  stack->emplace_back(at::empty(edges.sizes(), self.options()));
}

// (self, bins, range, weight, density) -> edges of each dimension
void histogramdd_edges(Stack* stack) {
  const Tensor self = tensor(stack, 0);
  const std::vector<int64_t> bins = (*stack)[1].toIntVector();
  points(self, "torch.histogramdd", bins.size());
  check_counts("torch.histogramdd", bins, (*stack)[2]);
  c10::List<Tensor> edges;
  for (int64_t n : bins) edges.push_back(at::empty({n + 1}, self.options()));
  stack->clear();
  stack->emplace_back(std::move(edges));
}

// (self, bins, range, weight, density) -> hist
void histogramdd_of_counts(Stack* stack) {
  const Tensor self = tensor(stack, 0);
  const std::vector<int64_t> bins = (*stack)[1].toIntVector();
  check_weight("torch.histogramdd", self, points(self, "torch.histogramdd", bins.size()), (*stack)[3]);
  check_counts("torch.histogramdd", bins, (*stack)[2]);
  stack->clear();
  stack->emplace_back(at::empty(bins, self.options()));
}

// (self, bins, weight, density) -> hist
void histogramdd_of_edges(Stack* stack) {
  const Tensor self = tensor(stack, 0);
  const std::vector<Tensor> edges = (*stack)[1].toTensorVector();
  check_weight("torch.histogramdd", self, points(self, "torch.histogramdd", edges.size()), (*stack)[2]);
  std::vector<int64_t> bins;
  for (const Tensor& e : edges) {
    check_edges("torch.histogramdd", self, e);
    bins.push_back(e.numel() - 1);
  }
  stack->clear();
  stack->emplace_back(at::empty(bins, self.options()));
}

}  // namespace

const std::map<std::string, OwnInference>& counting_inference() {
  static const std::map<std::string, OwnInference> table = {
      {"aten::fake_quantize_per_tensor_affine_cachemask", &fake_quantize_per_tensor},
      {"aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", &fake_quantize_per_tensor_of_tensors},
      {"aten::fake_quantize_per_channel_affine_cachemask", &fake_quantize_per_channel},
      {"aten::histogram.bin_ct", &histogram_of_count},
      {"aten::histogram.bins_tensor", &histogram_of_edges},
      {"aten::_histogramdd_bin_edges", &histogramdd_edges},
      {"aten::_histogramdd_from_bin_cts", &histogramdd_of_counts},
      {"aten::_histogramdd_from_bin_tensors", &histogramdd_of_edges},
  };
  return table;
}

}  // namespace torch_tpu::aten
