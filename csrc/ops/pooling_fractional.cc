// Fractional max pooling, whose windows start where random samples say, and max unpooling.
#include "ops/indexing.h"
#include "ops/pooling.h"
#include "ops/promote.h"

namespace torch_tpu::ops {
namespace {

// Starts of the windows of one dimension, [planes, outputs]: truncated multiples of alpha shifted by the plane's
// sample; the last window ends with the input.
Value window_starts(Builder& b, Value sample, int64_t inputs, int64_t outputs, int64_t kernel) {
  int64_t planes = sample.dim(0), last = inputs - kernel;
  Type type{sample.dtype(), {planes, outputs}}, index{DType::kI32, type.shape};
  Value end = b.constant_int(index, last);
  if (outputs == 1) return end;
  Value alpha = b.constant(type, static_cast<double>(last) / static_cast<double>(outputs - 1));
  Value wide = b.broadcast_in_dim(sample, type.shape, {0});
  auto whole = [&](Value v) { return b.convert(v, DType::kI32); };
  Value starts = b.sub(whole(b.mul(b.add(b.iota(type, 1), wide), alpha)), whole(b.mul(wide, alpha)));
  Value is_last = b.eq(b.iota(index, 1), b.constant_int(index, outputs - 1));
  return b.clamp(b.scalar_int(DType::kI32, 0), b.select(is_last, end, starts), b.scalar_int(DType::kI32, last));
}

// x [planes, .., n, ..] at positions [planes, m] of dimension `dim`: [planes, .., m, ..].
Value take_per_plane(Builder& b, Value x, int64_t dim, Value positions) {
  hlo::GatherDims dims;
  dims.operand_batching_dims = {0};
  dims.start_indices_batching_dims = {0};
  dims.collapsed_slice_dims = {dim};
  dims.start_index_map = {dim};
  dims.index_vector_dim = 2;
  dims.slice_sizes = x.shape();
  dims.slice_sizes[0] = dims.slice_sizes[dim] = 1;
  // Planes and positions come first; the other dimensions follow and are moved around the positions.
  Dims permutation = {0};
  for (int64_t d = 1; d < x.rank(); ++d) {
    if (d != dim) dims.offset_dims.push_back(static_cast<int64_t>(dims.offset_dims.size()) + 2);
  }
  int64_t rest = 2;
  for (int64_t d = 1; d < x.rank(); ++d) permutation.push_back(d == dim ? 1 : rest++);
  return b.transpose(b.gather(x, positions, dims), permutation);
}

Values max_dim(Builder& b, Value value, Value position, int64_t dim, Value starts, int64_t kernel) {
  int64_t planes = starts.dim(0), outputs = starts.dim(1);
  Shape shape = {planes, outputs, kernel};
  Type index{starts.dtype(), shape};
  Value at = b.add(b.broadcast_in_dim(starts, shape, {0, 1}), b.iota(index, 2));
  at = b.reshape(at, {planes, outputs * kernel});
  Shape split = value.shape();
  split[dim] = outputs;
  split.insert(split.begin() + dim + 1, kernel);
  auto windowed = [&](Value x) { return b.reshape(take_per_plane(b, x, dim, at), split); };
  Values inits = {b.min_value({value.dtype(), {}}), b.scalar_int(position.dtype(), -1)};
  auto body = [](Builder& rb, const Values& v) -> Values { return larger(rb, v[0], v[1], v[2], v[3]); };
  return b.reduce({windowed(value), windowed(position)}, inits, {dim + 1}, body);
}

// fractional_max_poolNd(self, kernel_size, output_size, random_samples)
Rule fractional_max_pool(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    Value x = args.tensor(0), samples = args.tensor(3);
    if (element_count(c.out().shape) == 0) return {b.zeros(c.out(0)), b.zeros(c.out(1))};
    Shape spatial(x.shape().end() - dims, x.shape().end());
    int64_t planes = x.numel() / element_count(spatial);
    Shape flat = spatial;
    flat.insert(flat.begin(), planes);
    Value value = b.reshape(x, flat), position = spatial_positions(b, flat, dims);
    samples = b.reshape(samples, {samples.numel() / dims, dims});
    for (int64_t i = dims - 1; i >= 0; --i) {
      // In two dimensions the samples are for the width, then the height; in three they follow the dimensions.
      int64_t column = dims == 2 ? 1 - i : i;
      Value sample = b.reshape(b.slice(samples, {0, column}, {planes, column + 1}), {planes});
      int64_t kernel = args.ints(1).size() == 1 ? args.ints(1)[0] : args.ints(1)[i];
      int64_t outputs = c.out().shape[c.out().shape.size() - dims + i];
      Values found = max_dim(b, value, position, i + 1, window_starts(b, sample, spatial[i], outputs, kernel), kernel);
      value = found[0];
      position = found[1];
    }
    return {b.reshape(value, c.out(0).shape), b.reshape(b.convert(position, c.out(1).dtype), c.out(1).shape)};
  };
}

// fractional_max_poolNd_backward(grad, self, kernel_size, output_size, indices)
Rule fractional_max_pool_backward(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    const Type& out = c.out();
    Value grad = args.tensor(0);
    if (grad.numel() == 0 || element_count(out.shape) == 0) return {b.zeros(out)};
    grad = b.convert(grad, compute_dtype(out.dtype));
    Value sum = scatter_spatial(b, grad, args.tensor(4), {grad.dtype(), out.shape}, dims, /*add=*/true);
    return {b.convert(sum, out.dtype)};
  };
}

// max_unpoolNd(self, indices, output_size, ...): each element returns to the position it was the maximum of.
Rule max_unpool(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    const Type& out = c.out();
    if (args.tensor(0).numel() == 0 || element_count(out.shape) == 0) return {c.b.zeros(out)};
    int64_t size = element_count(Shape(out.shape.end() - dims, out.shape.end()));
    Value positions = checked_index(c, args.tensor(1), size, /*wrap=*/false, Access::kWrite);
    return {scatter_spatial(c.b, args.tensor(0), positions, out, dims, /*add=*/false)};
  };
}

}  // namespace

void add_fractional_pooling_rows(Rows& rows) {
  rows.push_back(Row{"aten::fractional_max_pool2d", fractional_max_pool(2)});
  rows.push_back(Row{"aten::fractional_max_pool3d", fractional_max_pool(3)});
  rows.push_back(Row{"aten::fractional_max_pool2d_backward", fractional_max_pool_backward(2)});
  rows.push_back(Row{"aten::fractional_max_pool3d_backward", fractional_max_pool_backward(3)});
  rows.push_back(Row{"aten::max_unpool2d", max_unpool(2)}.as_indexing());
  rows.push_back(Row{"aten::max_unpool3d", max_unpool(3)}.as_indexing());
}

}  // namespace torch_tpu::ops
