// Operations of the Builder that move elements without computing on them.
#include <algorithm>
#include <numeric>

#include "hlo/attributes.h"
#include "hlo/builder.h"

namespace torch_tpu::hlo {
namespace {

int64_t size_of(const Dims& dims) { return static_cast<int64_t>(dims.size()); }

std::string rank_lists(int64_t rank) { return "lists of " + std::to_string(rank); }

}  // namespace

Value Builder::reshape(Value x, const Shape& shape) {
  constexpr const char* kOp = "stablehlo.reshape";
  if (!present(kOp, {x})) return placeholder({DType::kF32, shape});
  if (x.shape() == shape) return x;
  const Type type{x.dtype(), shape};
  if (std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 0; }) || element_count(shape) != x.numel())
    return mistake(kOp, "shape", to_string(shape), "as many elements as " + x.type().text(), type);
  return emit_one(kOp, {x}, type);
}

Value Builder::transpose(Value x, const Dims& permutation) {
  constexpr const char* kOp = "stablehlo.transpose";
  if (!present(kOp, {x})) return placeholder({DType::kF32, {}});
  if (size_of(permutation) != x.rank() || !distinct_dims(kOp, "permutation", permutation, x.rank()))
    return mistake(kOp, "permutation", bracketed(permutation), "a permutation for " + x.type().text(), x.type());
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  Shape shape;
  for (int64_t d : permutation) shape.push_back(x.dim(d));
  return emit_one(kOp, {x}, {x.dtype(), shape}, "permutation = " + i64_array(permutation));
}

Value Builder::broadcast_in_dim(Value x, const Shape& shape, const Dims& dims) {
  constexpr const char* kOp = "stablehlo.broadcast_in_dim";
  if (!present(kOp, {x})) return placeholder({DType::kF32, shape});
  const Type type{x.dtype(), shape};
  const auto rank = static_cast<int64_t>(shape.size());
  if (size_of(dims) != x.rank() || !distinct_dims(kOp, "dimensions", dims, rank))
    return mistake(kOp, "dimensions", bracketed(dims), "one dimension of the result for each of " + x.type().text(),
                   type);
  for (int64_t i = 0; i < x.rank(); ++i)
    if (x.dim(i) != 1 && x.dim(i) != shape[dims[i]])
      return mistake(kOp, "operand " + x.type().text() + " at dimensions " + bracketed(dims), to_string(shape),
                     "equal sizes or 1", type);
  if (x.shape() == shape && std::is_sorted(dims.begin(), dims.end())) return x;
  return emit_one(kOp, {x}, type, "broadcast_dimensions = " + i64_array(dims));
}

Value Builder::broadcast(Value x, const Shape& shape) {
  if (!present("broadcast", {x})) return placeholder({DType::kF32, shape});
  const int64_t offset = static_cast<int64_t>(shape.size()) - x.rank();
  if (offset < 0)
    return mistake("broadcast", "shape", to_string(shape), "at least the rank of " + x.type().text(),
                   {x.dtype(), shape});
  Dims dims(x.rank());
  std::iota(dims.begin(), dims.end(), offset);
  return broadcast_in_dim(x, shape, dims);
}

Value Builder::slice(Value x, const Dims& start, const Dims& limit, const Dims& strides) {
  constexpr const char* kOp = "stablehlo.slice";
  if (!present(kOp, {x})) return placeholder({DType::kF32, {}});
  const int64_t rank = x.rank();
  const Dims steps = strides.empty() ? Dims(rank, 1) : strides;
  if (size_of(start) != rank || size_of(limit) != rank || size_of(steps) != rank)
    return mistake(kOp, "bounds", bracketed(start) + ", " + bracketed(limit) + ", " + bracketed(steps),
                   rank_lists(rank), x.type());
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) {
    if (start[i] < 0 || limit[i] < start[i] || limit[i] > x.dim(i) || steps[i] < 1)
      return mistake(kOp, "bounds", bracketed(start) + ", " + bracketed(limit) + ", " + bracketed(steps),
                     "bounds inside " + x.type().text(), x.type());
    shape.push_back((limit[i] - start[i] + steps[i] - 1) / steps[i]);
  }
  if (shape == x.shape()) return x;
  return emit_one(kOp, {x}, {x.dtype(), shape},
                  "start_indices = " + i64_array(start) + ", limit_indices = " + i64_array(limit) +
                      ", strides = " + i64_array(steps));
}

Value Builder::slice_dim(Value x, int64_t dim, int64_t start, int64_t limit, int64_t step) {
  if (!present("stablehlo.slice", {x})) return placeholder({DType::kF32, {}});
  if (dim < 0) dim += x.rank();
  if (dim < 0 || dim >= x.rank())
    return mistake("stablehlo.slice", "dimension", std::to_string(dim), "a dimension of " + x.type().text(), x.type());
  Dims starts(x.rank(), 0), limits(x.shape()), steps(x.rank(), 1);
  starts[dim] = start;
  limits[dim] = limit;
  steps[dim] = step;
  return slice(x, starts, limits, steps);
}

Value Builder::pad(Value x, Value padding_value, const Dims& low, const Dims& high, const Dims& interior) {
  constexpr const char* kOp = "stablehlo.pad";
  if (!present(kOp, {x, padding_value})) return placeholder(x.type());
  const int64_t rank = x.rank();
  const Dims inner = interior.empty() ? Dims(rank, 0) : interior;
  const std::string got = bracketed(low) + ", " + bracketed(high) + ", " + bracketed(inner);
  if (padding_value.type() != Type{x.dtype(), {}})
    return mistake(kOp, "padding value", padding_value.type().text(), Type{x.dtype(), {}}.text(), x.type());
  if (size_of(low) != rank || size_of(high) != rank || size_of(inner) != rank)
    return mistake(kOp, "amounts", got, rank_lists(rank), x.type());
  Shape shape;
  bool changed = false;
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t size = low[i] + x.dim(i) + std::max<int64_t>(x.dim(i) - 1, 0) * inner[i] + high[i];
    if (inner[i] < 0 || size < 0)
      return mistake(kOp, "amounts", got, "sizes of at least 0 from " + x.type().text(), x.type());
    changed |= low[i] != 0 || high[i] != 0 || (inner[i] != 0 && x.dim(i) > 1);
    shape.push_back(size);
  }
  if (!changed) return x;
  return emit_one(kOp, {x, padding_value}, {x.dtype(), shape},
                  "edge_padding_low = " + i64_array(low) + ", edge_padding_high = " + i64_array(high) +
                      ", interior_padding = " + i64_array(inner));
}

Value Builder::concatenate(const Values& xs, int64_t dim) {
  constexpr const char* kOp = "stablehlo.concatenate";
  if (xs.empty()) return mistake(kOp, "operands", "none", "at least one");
  if (!present(kOp, xs)) return placeholder({DType::kF32, {}});
  Type type = xs[0].type();
  if (dim < 0) dim += xs[0].rank();
  if (dim < 0 || dim >= xs[0].rank())
    return mistake(kOp, "dimension", std::to_string(dim), "a dimension of " + type.text(), type);
  type.shape[dim] = 0;
  for (const Value& x : xs) {
    Type outline = x.type();
    if (x.rank() == xs[0].rank()) outline.shape[dim] = type.shape[dim];
    if (outline != type)
      return mistake(kOp, "operand", x.type().text(), xs[0].type().text() + " but for dimension " + std::to_string(dim),
                     type);
    type.shape[dim] += x.dim(dim);
  }
  return xs.size() == 1 ? xs[0] : emit_one(kOp, xs, type, i64_attribute("dimension", dim));
}

Value Builder::reverse(Value x, const Dims& dims) {
  constexpr const char* kOp = "stablehlo.reverse";
  if (!present(kOp, {x})) return placeholder({DType::kF32, {}});
  if (!distinct_dims(kOp, "dimensions", dims, x.rank())) return placeholder(x.type());
  return dims.empty() ? x : emit_one(kOp, {x}, x.type(), "dimensions = " + i64_array(dims));
}

Value Builder::dynamic_slice(Value x, const Values& starts, const Dims& sizes) {
  constexpr const char* kOp = "stablehlo.dynamic_slice";
  if (!present(kOp, {x}) || !present(kOp, starts)) return placeholder({x.dtype(), sizes});
  const Type type{x.dtype(), sizes};
  if (size_of(sizes) != x.rank() || static_cast<int64_t>(starts.size()) != x.rank())
    return mistake(kOp, "starts and sizes", std::to_string(starts.size()) + ", " + bracketed(sizes),
                   rank_lists(x.rank()), type);
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (sizes[i] < 0 || sizes[i] > x.dim(i))
      return mistake(kOp, "sizes", bracketed(sizes), "at most " + to_string(x.shape()), type);
    if (starts[i].rank() != 0 || !is_integer(starts[i].dtype()) || starts[i].dtype() != starts[0].dtype())
      return mistake(kOp, "start", starts[i].type().text(), "rank-0 integers of one dtype", type);
  }
  Values operands{x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return emit_one(kOp, operands, type, "slice_sizes = " + i64_array(sizes));
}

Value Builder::dynamic_update_slice(Value x, Value update, const Values& starts) {
  constexpr const char* kOp = "stablehlo.dynamic_update_slice";
  if (!present(kOp, {x, update}) || !present(kOp, starts)) return placeholder(x.type());
  if (update.dtype() != x.dtype() || update.rank() != x.rank())
    return mistake(kOp, "update", update.type().text(), "dtype and rank of " + x.type().text(), x.type());
  if (static_cast<int64_t>(starts.size()) != x.rank())
    return mistake(kOp, "starts", std::to_string(starts.size()), std::to_string(x.rank()), x.type());
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (update.dim(i) > x.dim(i))
      return mistake(kOp, "update", update.type().text(), "at most " + x.type().text(), x.type());
    if (starts[i].rank() != 0 || !is_integer(starts[i].dtype()) || starts[i].dtype() != starts[0].dtype())
      return mistake(kOp, "start", starts[i].type().text(), "rank-0 integers of one dtype", x.type());
  }
  Values operands{x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return emit_one(kOp, operands, x.type());
}

Value Builder::unsqueeze(Value x, int64_t dim) {
  if (!present("unsqueeze", {x})) return placeholder({DType::kF32, {1}});
  if (dim < 0) dim += x.rank() + 1;
  if (dim < 0 || dim > x.rank())
    return mistake("unsqueeze", "dimension", std::to_string(dim), "at most " + std::to_string(x.rank()), x.type());
  Shape shape = x.shape();
  shape.insert(shape.begin() + dim, 1);
  return reshape(x, shape);
}

Value Builder::squeeze(Value x, int64_t dim) {
  if (!present("squeeze", {x})) return placeholder({DType::kF32, {}});
  if (dim < 0) dim += x.rank();
  if (dim < 0 || dim >= x.rank() || x.dim(dim) != 1)
    return mistake("squeeze", "dimension", std::to_string(dim), "one of size 1 in " + x.type().text(), x.type());
  Shape shape = x.shape();
  shape.erase(shape.begin() + dim);
  return reshape(x, shape);
}

Value Builder::extent(Value x, int64_t dim, DType dtype) {
  if (!present("extent", {x})) return placeholder({dtype, {}});
  const int64_t d = dim < 0 ? dim + x.rank() : dim;
  if (d < 0 || d >= x.rank())
    return mistake("extent", "dimension", std::to_string(dim), "a dimension of " + x.type().text(), {dtype, {}});
  return constant_int({dtype, {}}, x.dim(d));
}

Value Builder::extents(Value x, const Dims& dims, DType dtype) {
  if (!present("extents", {x})) return placeholder({dtype, {}});
  int64_t product = 1;
  if (dims.empty()) product = x.numel();
  for (int64_t dim : dims) {
    const int64_t d = dim < 0 ? dim + x.rank() : dim;
    if (d < 0 || d >= x.rank())
      return mistake("extents", "dimension", std::to_string(dim), "a dimension of " + x.type().text(), {dtype, {}});
    product *= x.dim(d);
  }
  return constant_int({dtype, {}}, product);
}

}  // namespace torch_tpu::hlo
