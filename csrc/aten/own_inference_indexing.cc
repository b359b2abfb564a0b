// Shape inference for indexing, shape and ordering ops whose PyTorch meta functions are written in Python: the first of
// those that a process calls imports 500 modules, a third of a second to a second.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/stack.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/cat_meta_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_meta_dispatch.h>

#include "aten/infer.h"

namespace torch_tpu::aten {
namespace {

using torch::jit::Stack;

// (self, indices, values, accumulate, ...)
void check_index_put(const Stack& stack) {
  const at::Tensor self = stack[0].toTensor(), values = stack[2].toTensor();
  TORCH_CHECK_INDEX(self.scalar_type() == values.scalar_type(),
                    "Index put requires the source and destination dtypes match, got ", self.scalar_type(),
                    " for the destination and ", values.scalar_type(), " for the source.");
  const auto indices = stack[1].to<c10::List<std::optional<at::Tensor>>>();
  bool indexed = false;
  for (const std::optional<at::Tensor>& index : indices) indexed |= index.has_value() && index->defined();
  if (!indexed) return;
  const at::Tensor result = at::meta::index(self, indices);
  at::IntArrayRef sizes = values.sizes();
  while (sizes.size() > static_cast<size_t>(result.dim()) && sizes.front() == 1) sizes = sizes.slice(1);
  TORCH_CHECK(at::is_expandable_to(sizes, result.sizes()), "shape mismatch: value tensor of shape ", values.sizes(),
              " cannot be broadcast to indexing result of shape ", result.sizes());
}

void index_put(Stack* stack) {
  check_index_put(*stack);
  const at::Tensor self = (*stack)[0].toTensor();
  stack->clear();
  stack->emplace_back(dense_like(self, self.scalar_type()));
}

void index_put_in_place(Stack* stack) {
  check_index_put(*stack);
  const c10::IValue self = (*stack)[0];
  stack->clear();
  stack->push_back(self);
}

// (tensors, dim)
void stack_tensors(Stack* stack) {
  const std::vector<at::Tensor> tensors = (*stack)[0].toTensorVector();
  TORCH_CHECK(!tensors.empty(), "stack expects a non-empty TensorList");
  const int64_t dim = at::maybe_wrap_dim((*stack)[1].toInt(), tensors[0].dim() + 1);
  std::vector<at::Tensor> rows;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(tensors[i].sizes() == tensors[0].sizes(), "stack expects each tensor to be equal size, but got ",
                tensors[0].sizes(), " at entry 0 and ", tensors[i].sizes(), " at entry ", i);
    rows.push_back(tensors[i].unsqueeze(dim));
  }
  stack->clear();
  stack->emplace_back(at::meta::cat(rows, dim));
}

// (self, dims)
void flip(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor();
  at::dim_list_to_bitset((*stack)[1].toDimVector(), self.dim());
  stack->clear();
  stack->emplace_back(dense_like(self, self.scalar_type()));
}

// (self, shifts, dims)
void roll(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor();
  const auto shifts = (*stack)[1].toDimVector(), dims = (*stack)[2].toDimVector();
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  if (!(dims.empty() && shifts.size() == 1)) {
    TORCH_CHECK(shifts.size() == dims.size(), "shifts and dimensions must align. shifts: ", shifts.size(),
                ", dims:", dims.size());
  }
  TORCH_CHECK_INDEX(self.dim() > 0 || dims.empty(), "Dimension specified as ", dims.empty() ? 0 : dims[0],
                    " but tensor has no dimensions");
  for (int64_t dim : dims) at::maybe_wrap_dim(dim, self.dim());
  stack->clear();
  stack->emplace_back(at::empty_like(self, at::MemoryFormat::Contiguous));
}

// (self, repeats)
void repeat(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor();
  const auto repeats = (*stack)[1].toDimVector();
  TORCH_CHECK(static_cast<int64_t>(repeats.size()) >= self.dim(),
              "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
  std::vector<int64_t> sizes(repeats.begin(), repeats.end());
  const size_t added = repeats.size() - self.dim();
  for (int64_t d = 0; d < self.dim(); ++d) sizes[added + d] *= self.size(d);
  stack->clear();
  stack->emplace_back(at::empty(sizes, self.options()));
}

// (self, output_size) with the last `dims` dimensions pooled
template <int64_t dims>
void adaptive_average(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor();
  const auto output = (*stack)[1].toDimVector();
  const std::string name = dims == 2 ? "adaptive_avg_pool2d" : "adaptive_avg_pool3d";
  TORCH_CHECK(output.size() == dims, name, ": output_size must be ", dims);
  TORCH_CHECK(self.dim() == dims + 1 || self.dim() == dims + 2, name, "(): Expected ", dims + 1, "D or ", dims + 2,
              "D tensor, but got ", self.sizes());
  std::vector<int64_t> sizes = self.sizes().vec();
  for (int64_t i = 1; i <= dims; ++i) {
    TORCH_CHECK(self.size(-i) > 0, name,
                "(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ", self.sizes(),
                " with dimension ", self.dim() - i, " being empty");
    sizes[self.dim() - i] = output[dims - i];
  }
  const at::MemoryFormat format = dims == 2 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
  stack->clear();
  stack->emplace_back(at::empty(sizes, self.options().memory_format(format)));
}

// (grad_output, self)
void adaptive_average_backward(Stack* stack) {
  const at::Tensor self = (*stack)[1].toTensor();
  stack->clear();
  stack->emplace_back(at::empty_like(self, self.suggest_memory_format()));
}

at::Tensor sampled(const at::Tensor& input, const at::Tensor& grid) {
  std::vector<int64_t> sizes = {input.size(0), input.size(1)};
  for (int64_t d = 1; d + 1 < grid.dim(); ++d) sizes.push_back(grid.size(d));
  return at::empty(sizes, input.options());
}

// (input, grid, interpolation_mode, padding_mode, align_corners)
void grid_sampler_2d(Stack* stack) {
  const at::Tensor input = (*stack)[0].toTensor(), grid = (*stack)[1].toTensor();
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_2d(input, grid);
  stack->clear();
  stack->emplace_back(sampled(input, grid));
}

void grid_sampler_3d(Stack* stack) {
  const at::Tensor input = (*stack)[0].toTensor(), grid = (*stack)[1].toTensor();
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_3d(input, grid, (*stack)[2].toInt());
  stack->clear();
  stack->emplace_back(sampled(input, grid));
}

// (grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask)
void grid_sampler_backward(Stack* stack) {
  const at::Tensor input = (*stack)[1].toTensor(), grid = (*stack)[2].toTensor();
  const auto mask = (*stack)[6].toBoolList();
  const bool wanted = mask[0];
  stack->clear();
  stack->emplace_back(wanted ? at::empty_like(input, at::MemoryFormat::Contiguous) : at::Tensor());
  stack->emplace_back(at::empty_like(grid, at::MemoryFormat::Contiguous));
}

// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
void embedding_bag(Stack* stack) {
  const at::Tensor weight = (*stack)[0].toTensor(), indices = (*stack)[1].toTensor(), offsets = (*stack)[2].toTensor();
  const at::Tensor sample = (*stack)[6].isTensor() ? (*stack)[6].toTensor() : at::Tensor();
  const bool maximum = (*stack)[4].toInt() == 2, last_offset = (*stack)[7].toBool();
  for (const at::Tensor& t : {indices, offsets}) {
    TORCH_CHECK(t.scalar_type() == at::kLong || t.scalar_type() == at::kInt, "embedding_bag: expected ",
                t.is_same(indices) ? "indices" : "offsets", " to be int64 or int32, got ", t.scalar_type());
  }
  if (sample.defined()) {
    TORCH_CHECK((*stack)[4].toInt() == 0, "embedding_bag: per_sample_weights only supported with mode='sum'");
    TORCH_CHECK(sample.dim() == 1 && sample.numel() == indices.numel(), "expected per_sample_weights to be 1D of ",
                indices.numel(), " elements, got ", sample.sizes());
  }
  TORCH_CHECK(!last_offset || offsets.size(0) >= 1, "include_last_offset: number of offsets should be at least 1");
  const int64_t bags = offsets.size(0) - (last_offset ? 1 : 0);
  stack->clear();
  stack->emplace_back(at::empty({bags, weight.size(1)}, weight.options()));
  stack->emplace_back(at::empty({indices.size(0)}, indices.options()));
  stack->emplace_back(at::empty(offsets.sizes(), indices.options()));
  stack->emplace_back(maximum ? at::empty({bags, weight.size(1)}, indices.options())
                              : at::empty({0}, indices.options()));
}

// The checks of searchsorted and bucketize, but for the values of `sorter`, which the program checks.
at::Tensor searched(const at::Tensor& boundaries, const at::Tensor& values, bool int32, bool right,
                    std::optional<std::string_view> side, const at::Tensor& sorter) {
  if (sorter.defined()) {
    TORCH_CHECK(sorter.sizes() == boundaries.sizes(),
                "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor ",
                boundaries.sizes(), "and got sorter tensor ", sorter.sizes());
    TORCH_CHECK(sorter.scalar_type() == at::kLong,
                "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype ", sorter.scalar_type());
  }
  const at::Tensor result = at::empty(values.sizes(), values.options().dtype(int32 ? at::kInt : at::kLong));
  at::native::searchsorted_pre_check(boundaries, values, result, int32, right, side, {});
  return result;
}

at::Tensor number_or_tensor(const c10::IValue& v) {
  return v.isTensor() ? v.toTensor() : at::empty({}, at::TensorOptions(at::kFloat).device(at::kMeta));
}

// (sorted_sequence, self, out_int32, right, side, sorter)
void searchsorted(Stack* stack) {
  const at::Tensor sorter = (*stack)[5].isTensor() ? (*stack)[5].toTensor() : at::Tensor();
  const bool has_side = !(*stack)[4].isNone();
  const std::string side = has_side ? (*stack)[4].toStringRef() : "";
  at::Tensor result =
      searched((*stack)[0].toTensor(), number_or_tensor((*stack)[1]), (*stack)[2].toBool(), (*stack)[3].toBool(),
               has_side ? std::optional<std::string_view>(side) : std::nullopt, sorter);
  stack->clear();
  stack->emplace_back(std::move(result));
}

// (self, boundaries, out_int32, right)
void bucketize(Stack* stack) {
  const at::Tensor boundaries = (*stack)[1].toTensor();
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(), ")");
  at::Tensor result =
      searched(boundaries, number_or_tensor((*stack)[0]), (*stack)[2].toBool(), (*stack)[3].toBool(), {}, {});
  stack->clear();
  stack->emplace_back(std::move(result));
}

}  // namespace

const std::map<std::string, OwnInference>& indexing_inference() {
  static const std::map<std::string, OwnInference> table = {
      {"aten::index_put", &index_put},
      {"aten::_unsafe_index_put", &index_put},
      {"aten::_index_put_impl_", &index_put_in_place},
      {"aten::stack", &stack_tensors},
      {"aten::_stack", &stack_tensors},
      {"aten::flip", &flip},
      {"aten::roll", &roll},
      {"aten::repeat", &repeat},
      {"aten::_adaptive_avg_pool2d", &adaptive_average<2>},
      {"aten::_adaptive_avg_pool3d", &adaptive_average<3>},
      {"aten::_adaptive_avg_pool2d_backward", &adaptive_average_backward},
      {"aten::_adaptive_avg_pool3d_backward", &adaptive_average_backward},
      {"aten::grid_sampler_2d", &grid_sampler_2d},
      {"aten::grid_sampler_3d", &grid_sampler_3d},
      {"aten::grid_sampler_2d_backward", &grid_sampler_backward},
      {"aten::grid_sampler_3d_backward", &grid_sampler_backward},
      {"aten::searchsorted.Tensor", &searchsorted},
      {"aten::searchsorted.Scalar", &searchsorted},
      {"aten::bucketize.Tensor", &bucketize},
      {"aten::bucketize.Scalar", &bucketize},
      {"aten::_embedding_bag", &embedding_bag},
      {"aten::_embedding_bag_forward_only", &embedding_bag},
  };
  return table;
}

}  // namespace torch_tpu::aten
