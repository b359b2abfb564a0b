// Embedding tables: embedding_dense_backward, embedding_renorm_ and the _embedding_bag family. Forward lookups are
// gathers of rows, gradients scatter rows back.
#include <cmath>

#include "ops/indexing.h"
#include "ops/promote.h"

namespace torch_tpu::ops {
namespace {

enum BagMode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

// embedding(weight, indices, padding_idx, ...)
Values embedding(Context& c, const Args& args) {
  Builder& b = c.b;
  Value weight = args.tensor(0), indices = args.tensor(1);
  Value index = checked_index(c, indices, weight.dim(0), /*wrap=*/false, Access::kRead);
  return {b.reshape(take_dim(b, weight, 0, b.reshape(index, {index.numel()})), c.out().shape)};
}

// How often each of `size` rows is named by `index` (i32 or i64 positions), at the positions themselves.
Value frequency(Builder& b, Value index, int64_t size, DType dtype) {
  Value counts = scatter_rows(b, b.zeros({dtype, {size}}), 0, index, b.ones({dtype, index.shape()}), Combine::kAdd);
  return take_dim(b, counts, 0, b.clamp(b.scalar_int(index.dtype(), 0), index, b.scalar_int(index.dtype(), size - 1)));
}

// Positions that equal `padding_idx` go nowhere.
Value drop_padding(Builder& b, Value index, int64_t padding_idx, int64_t size) {
  if (padding_idx < 0) return index;
  Value padding = b.eq(index, b.constant_int(index.type(), padding_idx));
  return b.select(padding, b.constant_int(index.type(), size), index);
}

// embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
Values embedding_dense_backward(Context& c, const Args& args) {
  Builder& b = c.b;
  Value grad = args.tensor(0), indices = args.tensor(1);
  int64_t count = args.integer(2), width = c.out().shape[1];
  if (grad.numel() == 0 || count == 0) return {b.zeros(c.out())};
  DType dtype = compute_dtype(grad.dtype());
  Value index = b.reshape(checked_index(c, indices, count, /*wrap=*/false, Access::kWrite), {indices.numel()});
  Value rows = b.convert(b.reshape(grad, {indices.numel(), width}), dtype);
  if (args.flag_or(4, false)) {
    Value times = frequency(b, index, count, dtype);
    rows = b.div(rows, b.broadcast_in_dim(times, rows.shape(), {0}));
  }
  index = drop_padding(b, index, args.integer(3), count);
  Value sum = scatter_rows(b, b.zeros({dtype, c.out().shape}), 0, index, rows, Combine::kAdd);
  return {b.convert(sum, c.out().dtype)};
}

// Norm of each row of x over dimension 1, as [rows].
Value row_norm(Builder& b, Value x, double p) {
  Value magnitude = b.abs(x);
  if (std::isinf(p)) return b.reduce_max(magnitude, {1});
  if (p == 1) return b.reduce_sum(magnitude, {1});
  if (p == 2) return b.sqrt(b.reduce_sum(b.mul(x, x), {1}));
  Value sum = b.reduce_sum(b.pow(magnitude, b.full_like(magnitude, p)), {1});
  return b.pow(sum, b.full_like(sum, 1 / p));
}

// embedding_renorm_(self, indices, max_norm, norm_type): rows that are looked up shrink to max_norm. Repeated indices
// write the same row again.
Values embedding_renorm(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = args.tensor(0), indices = args.tensor(1);
  if (self.numel() == 0 || indices.numel() == 0) return {self};
  DType dtype = compute_dtype(self.dtype());
  Value flat = b.reshape(indices, {indices.numel()});
  Value index = checked_index(c, flat, self.dim(0), /*wrap=*/false, Access::kRead);
  Value rows = b.convert(take_dim(b, self, 0, index), dtype);
  Value norm = row_norm(b, rows, args.number(3));
  Value limit = b.full_like(norm, args.number(2));
  Value scale = b.div(limit, b.add(norm, b.full_like(norm, 1e-7)));
  scale = b.select(b.gt(norm, limit), scale, b.ones(norm.type()));
  rows = b.mul(rows, b.broadcast_in_dim(scale, rows.shape(), {0}));
  return {scatter_rows(b, self, 0, index, b.convert(rows, self.dtype()), Combine::kReplace)};
}

// The bag of each index: the number of offsets at or before its position, minus one.
Value bag_of_position(Context& c, Value offsets, int64_t bags, int64_t positions) {
  Builder& b = c.b;
  Value starts = b.convert(b.slice(offsets, {0}, {bags}), DType::kI64);
  Value bag = search_sorted(b, starts, b.iota({DType::kI64, {positions}}, 0), /*right=*/true);
  return b.sub(bag, b.ones(bag.type()));
}

// One for each index that counts (not padding), in `dtype`.
Value counts_of(Builder& b, Value index, int64_t padding_idx, DType dtype) {
  if (padding_idx < 0) return b.ones({dtype, index.shape()});
  return b.convert(b.ne(index, b.constant_int(index.type(), padding_idx)), dtype);
}

struct Bags {
  Value index;  // safe row of each position
  Value bag;    // bag of each position, i64
  Value keep;   // bool: not padding
  Value size;   // indices that count in each bag, i64 [bags]
  int64_t count;
};

Bags find_bags(Context& c, Value weight, Value indices, Value offsets, bool include_last_offset, int64_t padding_idx) {
  Builder& b = c.b;
  Bags bags;
  bags.count = offsets.dim(0) - (include_last_offset ? 1 : 0);
  int64_t n = indices.dim(0);
  bags.index = checked_index(c, indices, weight.dim(0), /*wrap=*/false, Access::kRead);
  if (padding_idx < 0) padding_idx = -1;
  Value ones = counts_of(b, bags.index, padding_idx, DType::kI64);
  bags.keep = b.ne(ones, b.zeros(ones.type()));
  bags.bag = bags.count > 0 ? bag_of_position(c, offsets, bags.count, n) : b.zeros({DType::kI64, {n}});
  Value zero = b.zeros({DType::kI64, {bags.count}});
  bags.size = scatter_rows(b, zero, 0, bags.bag, ones, Combine::kAdd);
  return bags;
}

// For each bag and column the row of weight that holds the maximum (first one on ties), -1 for an empty bag.
Values bag_maximum(Builder& b, const Bags& bags, Value rows, int64_t width, DType index_dtype) {
  Type table{rows.dtype(), {bags.count, width}};
  int64_t n = rows.dim(0);
  Value target = b.select(bags.keep, bags.bag, b.constant_int(bags.bag.type(), bags.count));
  Value best = scatter_rows(b, b.min_value(table), 0, target, rows, Combine::kMaximum);
  // The first position whose row reaches the maximum, found by a minimum over positions.
  Value at =
      take_dim(b, best, 0, b.clamp(b.scalar_int(DType::kI64, 0), bags.bag, b.scalar_int(DType::kI64, bags.count - 1)));
  Value hit = b.logical_or(b.eq(rows, at), b.is_nan(rows));
  Value far = b.constant_int({DType::kI64, rows.shape()}, n);
  Value position = b.select(hit, b.iota({DType::kI64, rows.shape()}, 0), far);
  Value first = b.constant_int({DType::kI64, table.shape}, n);
  first = scatter_rows(b, first, 0, target, position, Combine::kMinimum);
  Value none = b.eq(first, b.constant_int(first.type(), n));
  Value index = b.convert(bags.index, index_dtype);
  Value row = take_flat(b, index, b.clamp(b.scalar_int(DType::kI64, 0), first, b.scalar_int(DType::kI64, n - 1)));
  row = b.select(none, b.constant_int(row.type(), -1), row);
  return {b.select(none, b.zeros(best.type()), best), row};
}

// Fits a vector of per-bag or per-position numbers to the type PyTorch infers for it: converted, cut or padded by 0.
Value fit(Builder& b, Value x, const Type& type) {
  if (element_count(type.shape) == 0) return b.zeros(type);
  x = b.convert(x, type.dtype);
  if (x.shape() == type.shape) return x;
  Dims zeros(x.rank(), 0), high(x.rank());
  for (int64_t i = 0; i < x.rank(); ++i) high[i] = type.shape[i] - x.dim(i);
  return b.pad(x, b.scalar_int(type.dtype, 0), zeros, high);
}

// _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset,
// padding_idx) -> (output, offset2bag, bag_size, max_indices)
Values embedding_bag(Context& c, const Args& args) {
  Builder& b = c.b;
  Value weight = args.tensor(0), indices = args.tensor(1), offsets = args.tensor(2);
  int64_t mode = args.integer_or(4, 0), padding_idx = args.integer_or(8, -1);
  int64_t width = weight.dim(1), n = indices.dim(0);
  if (padding_idx < 0 && padding_idx != -1) padding_idx += weight.dim(0);
  if (n == 0 || element_count(c.out(0).shape) == 0) {
    Values empty;
    for (const Type& out : c.outs) empty.push_back(b.zeros(out));
    return empty;
  }
  Bags bags = find_bags(c, weight, indices, offsets, args.flag_or(7, false), padding_idx);
  DType dtype = compute_dtype(weight.dtype());
  Value rows = b.convert(take_dim(b, weight, 0, bags.index), dtype), max_rows = b.zeros({DType::kI64, {bags.count}}),
        output;
  if (mode == kMax) {
    Values best = bag_maximum(b, bags, rows, width, DType::kI64);
    output = best[0];
    max_rows = best[1];
  } else {
    if (Value sample = args.tensor(6))
      rows = b.mul(rows, b.broadcast_in_dim(b.convert(sample, dtype), rows.shape(), {0}));
    rows = b.select(b.broadcast_in_dim(bags.keep, rows.shape(), {0}), rows, b.zeros(rows.type()));
    output = scatter_rows(b, b.zeros({dtype, {bags.count, width}}), 0, bags.bag, rows, Combine::kAdd);
    if (mode == kMean) {
      Value size = b.max(bags.size, b.ones(bags.size.type()));
      output = b.div(output, b.broadcast_in_dim(b.convert(size, dtype), output.shape(), {0}));
    }
  }
  Value max_indices = mode == kMax ? fit(b, max_rows, c.out(3)) : b.zeros(c.out(3));
  return {b.convert(output, c.out(0).dtype), fit(b, bags.bag, c.out(1)), fit(b, bags.size, c.out(2)), max_indices};
}

// Where the pieces of a bag's backward are in the schema of the op.
struct BagBackward {
  Value grad, indices, bag, bag_size, max_indices, per_sample;
  int64_t count, mode, padding_idx;
  bool by_frequency;
};

Value bag_backward(Context& c, const BagBackward& a) {
  Builder& b = c.b;
  DType dtype = compute_dtype(a.grad.dtype());
  Value grad = b.convert(a.grad, dtype), zero = b.zeros({dtype, c.out().shape});
  int64_t width = grad.dim(1), bags = grad.dim(0);
  if (a.mode == kMax) {
    // One element per bag and column: positions row * width + column.
    Value row = b.convert(a.max_indices, DType::kI64);
    Value column = b.iota(row.type(), 1);
    Value position = b.add(b.mul(row, b.constant_int(row.type(), width)), column);
    position = b.select(b.lt(row, b.zeros(row.type())), b.constant_int(row.type(), -1), position);
    return scatter_flat(b, zero, position, grad, Combine::kAdd);
  }
  Value index = checked_index(c, a.indices, a.count, /*wrap=*/false, Access::kWrite);
  if (a.mode == kMean) {
    Value size = b.convert(b.slice(a.bag_size, {0}, {bags}), dtype);
    size = b.max(size, b.ones(size.type()));
    grad = b.div(grad, b.broadcast_in_dim(size, grad.shape(), {0}));
  }
  Value bag = b.clamp(b.scalar_int(a.bag.dtype(), 0), a.bag, b.scalar_int(a.bag.dtype(), bags - 1));
  Value rows = take_dim(b, grad, 0, bag);
  if (a.per_sample) rows = b.mul(rows, b.broadcast_in_dim(b.convert(a.per_sample, dtype), rows.shape(), {0}));
  if (a.by_frequency) {
    rows = b.div(rows, b.broadcast_in_dim(frequency(b, index, a.count, dtype), rows.shape(), {0}));
  }
  return scatter_rows(b, zero, 0, drop_padding(b, index, a.padding_idx, a.count), rows, Combine::kAdd);
}

// _embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights,
// scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx); the dense form has neither offsets nor sparse.
Rule embedding_bag_backward(bool dense) {
  return [dense](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    size_t k = dense ? 0 : 1;
    if (!dense && args.flag_or(9, false)) return {c.fail("sparse gradients are not supported on this device")};
    BagBackward a;
    a.grad = args.tensor(0);
    a.indices = args.tensor(1);
    a.bag = args.tensor(2 + k);
    a.bag_size = args.tensor(3 + k);
    a.max_indices = args.tensor(4 + k);
    a.count = args.integer(5 + k);
    a.by_frequency = args.flag_or(6 + k, false);
    a.mode = args.integer(7 + k);
    a.per_sample = args.tensor(dense ? 8 : 10);
    a.padding_idx = args.integer_or(dense ? 9 : 11, -1);
    if (element_count(c.out().shape) == 0 || a.grad.numel() == 0 || a.indices.numel() == 0) return {b.zeros(c.out())};
    if (a.bag.numel() == 0) {
      if (dense) return {c.fail("offset2bag is empty")};
      a.bag = bag_of_position(c, args.tensor(2), a.grad.dim(0), a.indices.dim(0));
    }
    return {b.convert(bag_backward(c, a), c.out().dtype)};
  };
}

// _embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, offset2bag, mode, padding_idx)
Values per_sample_weights_backward(Context& c, const Args& args) {
  Builder& b = c.b;
  Value grad = args.tensor(0), weight = args.tensor(1), indices = args.tensor(2), bag = args.tensor(4);
  if (indices.numel() == 0 || grad.numel() == 0) return {b.zeros(c.out())};
  if (bag.numel() == 0) bag = bag_of_position(c, args.tensor(3), grad.dim(0), indices.dim(0));
  DType dtype = compute_dtype(grad.dtype());
  Value index = checked_index(c, indices, weight.dim(0), /*wrap=*/false, Access::kRead);
  Value row = b.convert(take_dim(b, weight, 0, index), dtype);
  bag = b.clamp(b.scalar_int(bag.dtype(), 0), bag, b.scalar_int(bag.dtype(), grad.dim(0) - 1));
  Value product = b.reduce_sum(b.mul(row, b.convert(take_dim(b, grad, 0, bag), dtype)), {1});
  int64_t padding_idx = args.integer_or(6, -1);
  if (padding_idx >= 0) {
    Value padding = b.eq(index, b.constant_int(index.type(), padding_idx));
    product = b.select(padding, b.zeros(product.type()), product);
  }
  return {b.convert(product, c.out().dtype)};
}

}  // namespace

void add_embedding_rows(Rows& rows) {
  rows.push_back(Row{"aten::embedding", embedding}.as_indexing());
  rows.push_back(Row{"aten::embedding_dense_backward", embedding_dense_backward}.as_indexing());
  rows.push_back(Row{"aten::embedding_renorm_", embedding_renorm}.as_indexing());
  rows.push_back(Row{"aten::_embedding_bag", embedding_bag}.as_indexing());
  rows.push_back(Row{"aten::_embedding_bag_forward_only", embedding_bag}.as_indexing());
  rows.push_back(Row{"aten::_embedding_bag_backward", embedding_bag_backward(false)}.as_indexing());
  rows.push_back(Row{"aten::_embedding_bag_dense_backward", embedding_bag_backward(true)}.as_indexing());
  rows.push_back(Row{"aten::_embedding_bag_per_sample_weights_backward", per_sample_weights_backward}.as_indexing());
}

}  // namespace torch_tpu::ops
