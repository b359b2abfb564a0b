#include <limits>
#include <numeric>

#include "ops/indexing.h"
#include "ops/promote.h"

namespace torch_tpu::ops {
namespace {

Dims all_but(int64_t rank, int64_t dim) {
  Dims dims;
  for (int64_t i = 0; i < rank; ++i) {
    if (i != dim) dims.push_back(i);
  }
  return dims;
}

hlo::Region combiner(Combine combine) {
  return [combine](Builder& b, const Values& v) -> Values {
    switch (combine) {
      case Combine::kReplace:
        return {v[1]};
      case Combine::kAdd:
        return {b.add(v[0], v[1])};
      case Combine::kMultiply:
        return {b.mul(v[0], v[1])};
      case Combine::kMinimum:
        return {b.min(v[0], v[1])};
      case Combine::kMaximum:
        return {b.max(v[0], v[1])};
    }
    return {v[1]};
  };
}

// Arithmetic progressions are slices; a negative step is a reversed one.
Value take_progression(Builder& b, Value x, int64_t dim, int64_t start, int64_t step, int64_t count) {
  if (step > 0) return b.slice_dim(x, dim, start, start + (count - 1) * step + 1, step);
  int64_t last = start + (count - 1) * step;
  return b.reverse(b.slice_dim(x, dim, last, start + 1, -step), {dim});
}

// 0 0 0 1 1 1 2 2 2: the repetition count, or 0.
int64_t repetition(const std::vector<int64_t>& positions, int64_t size) {
  auto count = static_cast<int64_t>(positions.size());
  if (size == 0 || count % size != 0) return 0;
  int64_t repeat = count / size;
  for (int64_t i = 0; i < count; ++i) {
    if (positions[i] != i / repeat) return 0;
  }
  return repeat;
}

}  // namespace

Value checked_index(Context& c, Value index, int64_t size, bool wrap, Access access) {
  Builder& b = c.b;
  if (!is_signed_integer(index.dtype()) || byte_size(index.dtype()) < 4) index = b.convert(index, DType::kI64);
  const Type& type = index.type();
  Value zero = b.constant_int(type, 0), end = b.constant_int(type, size);
  if (c.index_checks) {
    Value low = wrap ? b.constant_int(type, -size) : zero;
    c.check_index(b.logical_or(b.lt(index, low), b.ge(index, end)));
  }
  if (wrap) index = b.select(b.lt(index, zero), b.add(index, end), index);
  // Clamping before narrowing keeps a wild 64-bit index from aliasing a valid 32-bit one.
  DType dtype = size < std::numeric_limits<int32_t>::max() ? DType::kI32 : DType::kI64;
  int64_t low = access == Access::kRead ? 0 : -1;
  int64_t high = access == Access::kRead ? std::max<int64_t>(size - 1, 0) : size;
  index = b.clamp(b.scalar_int(type.dtype, low), index, b.scalar_int(type.dtype, high));
  return b.convert(index, dtype);
}

Value at_least_1d(Builder& b, Value x) { return x.rank() == 0 ? b.reshape(x, {1}) : x; }

Value take_dim(Builder& b, Value x, int64_t dim, Value index) {
  hlo::GatherDims dims;
  dims.offset_dims = all_but(x.rank(), dim);
  dims.collapsed_slice_dims = {dim};
  dims.start_index_map = {dim};
  dims.index_vector_dim = 1;
  dims.slice_sizes = x.shape();
  dims.slice_sizes[dim] = 1;
  Shape shape = x.shape();
  shape[dim] = index.dim(0);
  // A gather of a window of size 1 out of nothing is not a valid program; the index was reported as out of range.
  if (element_count(shape) == 0 || x.numel() == 0) return b.zeros({x.dtype(), shape});
  return b.gather(x, index, dims);
}

Value gather_dim(Builder& b, Value x, int64_t dim, Value index) {
  if (index.numel() == 0 || x.numel() == 0) return b.zeros({x.dtype(), index.shape()});
  Dims limits = index.shape();
  limits[dim] = x.dim(dim);
  x = b.slice(x, Dims(x.rank(), 0), limits);
  hlo::GatherDims dims;
  dims.operand_batching_dims = all_but(x.rank(), dim);
  dims.start_indices_batching_dims = dims.operand_batching_dims;
  dims.collapsed_slice_dims = {dim};
  dims.start_index_map = {dim};
  dims.index_vector_dim = x.rank();
  dims.slice_sizes = Dims(x.rank(), 1);
  return b.gather(x, index, dims);
}

Value take_flat(Builder& b, Value x, Value positions) {
  Value flat = b.reshape(positions, {positions.numel()});
  return b.reshape(take_dim(b, b.reshape(x, {x.numel()}), 0, flat), positions.shape());
}

Value scatter_rows(Builder& b, Value x, int64_t dim, Value index, Value updates, Combine combine) {
  if (updates.numel() == 0 || x.numel() == 0) return x;
  hlo::ScatterDims dims;
  dims.update_window_dims = all_but(x.rank(), dim);
  dims.inserted_window_dims = {dim};
  dims.scatter_dims_to_operand_dims = {dim};
  dims.index_vector_dim = 1;
  DType dtype = scatter_dtype(x.dtype(), combine);
  Value wide = b.scatter(b.convert(x, dtype), index, b.convert(updates, dtype), dims, combiner(combine));
  return b.convert(wide, x.dtype());
}

Value scatter_dim(Builder& b, Value x, int64_t dim, Value index, Value updates, Combine combine) {
  if (index.numel() == 0 || x.numel() == 0) return x;
  DType dtype = scatter_dtype(x.dtype(), combine);
  Dims limits = index.shape();
  limits[dim] = x.dim(dim);
  Value part = b.convert(b.slice(x, Dims(x.rank(), 0), limits), dtype);
  hlo::ScatterDims dims;
  dims.input_batching_dims = all_but(x.rank(), dim);
  dims.scatter_indices_batching_dims = dims.input_batching_dims;
  dims.inserted_window_dims = {dim};
  dims.scatter_dims_to_operand_dims = {dim};
  dims.index_vector_dim = x.rank();
  part = b.convert(b.scatter(part, index, b.convert(updates, dtype), dims, combiner(combine)), x.dtype());
  if (limits == x.shape()) return part;
  return b.dynamic_update_slice(x, part, Values(x.rank(), b.scalar_int(DType::kI32, 0)));
}

Value scatter_flat(Builder& b, Value x, Value positions, Value updates, Combine combine) {
  Value flat = b.reshape(x, {x.numel()});
  int64_t n = positions.numel();
  return b.reshape(scatter_rows(b, flat, 0, b.reshape(positions, {n}), b.reshape(updates, {n}), combine), x.shape());
}

Value take_static(Builder& b, Value x, int64_t dim, const std::vector<int64_t>& positions) {
  auto count = static_cast<int64_t>(positions.size());
  Shape shape = x.shape();
  shape[dim] = count;
  if (element_count(shape) == 0) return b.zeros({x.dtype(), shape});
  int64_t step = count > 1 ? positions[1] - positions[0] : 1;
  bool progression = step != 0;
  for (int64_t i = 2; progression && i < count; ++i) progression = positions[i] - positions[i - 1] == step;
  if (progression) return take_progression(b, x, dim, positions[0], step, count);
  if (int64_t repeat = repetition(positions, x.dim(dim)); repeat > 0) {
    Shape wide = x.shape();
    wide.insert(wide.begin() + dim + 1, repeat);
    return b.reshape(b.broadcast_in_dim(x, wide, all_but(x.rank() + 1, dim + 1)), shape);
  }
  DType dtype = x.dim(dim) < std::numeric_limits<int32_t>::max() ? DType::kI32 : DType::kI64;
  return take_dim(b, x, dim, b.vector_int(dtype, positions));
}

DType scatter_dtype(DType dtype, Combine combine) {
  return combine == Combine::kAdd || combine == Combine::kMultiply ? compute_dtype(dtype) : dtype;
}

Value combine_identity(Builder& b, const Type& type, Combine combine) {
  switch (combine) {
    case Combine::kReplace:
    case Combine::kAdd:
      return b.zeros(type);
    case Combine::kMultiply:
      return b.ones(type);
    case Combine::kMinimum:
      return b.max_value(type);
    case Combine::kMaximum:
      return b.min_value(type);
  }
  return b.zeros(type);
}

Combine parse_combine(Context& c, const std::string& reduce) {
  if (reduce == "sum" || reduce == "add" || reduce == "mean") return Combine::kAdd;
  if (reduce == "prod" || reduce == "multiply") return Combine::kMultiply;
  if (reduce == "amax") return Combine::kMaximum;
  if (reduce == "amin") return Combine::kMinimum;
  c.fail("unknown reduction, got <" + reduce + ">, expected <sum, prod, mean, amax or amin>");
  return Combine::kReplace;
}

}  // namespace torch_tpu::ops
