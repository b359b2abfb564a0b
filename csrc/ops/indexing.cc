// Reading and writing at index tensors: index, index_put, gather, take, put, index_select, index_fill, masked_scatter,
// nonzero_static and the *_scatter forms of select, slice and diagonal.
#include "ops/indexing.h"

#include <algorithm>
#include <string>

#include "ops/promote.h"
#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

// Advanced indexing as NumPy and PyTorch define it: the index tensors broadcast to one shape, which takes the place of
// the indexed dimensions where they are neighbours, and comes first where they are not.
struct IndexPlan {
  Dims indexed;      // dimensions of self that have an index tensor, ascending
  Shape broadcast;   // common shape of the index tensors
  Dims window_dims;  // where self's other dimensions are in the result
  Shape result;
  Value positions;  // broadcast + [indexed.size()]
};

IndexPlan plan_index(Context& c, const Shape& self, const Values& indices, Access access) {
  Builder& b = c.b;
  IndexPlan plan;
  std::vector<Shape> shapes;
  Values wrapped;
  DType dtype = DType::kI32;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    plan.indexed.push_back(static_cast<int64_t>(d));
    shapes.push_back(indices[d].shape());
    wrapped.push_back(checked_index(c, indices[d], self[d], /*wrap=*/true, access));
    if (wrapped.back().dtype() == DType::kI64) dtype = DType::kI64;
  }
  plan.broadcast = broadcast_shapes(shapes);
  auto count = static_cast<int64_t>(plan.indexed.size());
  auto rank = static_cast<int64_t>(plan.broadcast.size());
  for (Value& index : wrapped) {
    index = as(c, index, dtype, plan.broadcast);
    index = b.unsqueeze(index, rank);
  }
  if (!wrapped.empty()) plan.positions = b.concatenate(wrapped, rank);
  bool adjacent = count == 0 || plan.indexed.back() - plan.indexed.front() + 1 == count;
  int64_t front = adjacent && count > 0 ? plan.indexed.front() : 0;
  Shape rest;
  for (int64_t d = 0; d < static_cast<int64_t>(self.size()); ++d) {
    if (std::find(plan.indexed.begin(), plan.indexed.end(), d) != plan.indexed.end()) continue;
    auto k = static_cast<int64_t>(rest.size());
    plan.window_dims.push_back(k < front ? k : k + rank);
    rest.push_back(self[d]);
  }
  plan.result = rest;
  plan.result.insert(plan.result.begin() + front, plan.broadcast.begin(), plan.broadcast.end());
  return plan;
}

Values index_tensor(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = args.tensor(0);
  IndexPlan plan = plan_index(c, self.shape(), args.tensors(1), Access::kRead);
  if (plan.indexed.empty()) return {self};
  if (element_count(plan.result) == 0 || self.numel() == 0) return {b.zeros(c.out())};
  hlo::GatherDims dims;
  dims.offset_dims = plan.window_dims;
  dims.collapsed_slice_dims = plan.indexed;
  dims.start_index_map = plan.indexed;
  dims.index_vector_dim = static_cast<int64_t>(plan.broadcast.size());
  dims.slice_sizes = self.shape();
  for (int64_t d : plan.indexed) dims.slice_sizes[d] = 1;
  return {b.gather(self, plan.positions, dims)};
}

// index_put(self, indices, values, accumulate); later duplicates win where it does not accumulate.
Values index_put(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = args.tensor(0), values = args.tensor(2);
  Combine combine = args.flag_or(3, false) ? Combine::kAdd : Combine::kReplace;
  IndexPlan plan = plan_index(c, self.shape(), args.tensors(1), Access::kWrite);
  Shape shape = values.shape();
  while (shape.size() > plan.result.size() && shape.front() == 1) shape.erase(shape.begin());
  DType dtype = scatter_dtype(self.dtype(), combine);
  Value updates = as(c, b.reshape(values, shape), self.dtype(), plan.result);
  if (updates.numel() == 0 || self.numel() == 0) return {self};
  if (plan.indexed.empty()) return {combine == Combine::kAdd ? b.add(self, updates) : updates};
  hlo::ScatterDims dims;
  dims.update_window_dims = plan.window_dims;
  dims.inserted_window_dims = plan.indexed;
  dims.scatter_dims_to_operand_dims = plan.indexed;
  dims.index_vector_dim = static_cast<int64_t>(plan.broadcast.size());
  auto body = [combine](Builder& rb, const Values& v) -> Values {
    return {combine == Combine::kAdd ? rb.add(v[0], v[1]) : v[1]};
  };
  Value wide = b.scatter(b.convert(self, dtype), plan.positions, b.convert(updates, dtype), dims, body);
  return {b.convert(wide, self.dtype())};
}

// gather(self, dim, index, sparse_grad)
Values gather(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = at_least_1d(b, args.tensor(0)), index = at_least_1d(b, args.tensor(2));
  int64_t dim = wrap_dim(args.integer(1), self.rank());
  index = checked_index(c, index, self.dim(dim), /*wrap=*/false, Access::kRead);
  return {b.reshape(gather_dim(b, self, dim, index), c.out().shape)};
}

// index_select(self, dim, index)
Values index_select(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = at_least_1d(b, args.tensor(0)), index = at_least_1d(b, args.tensor(2));
  int64_t dim = wrap_dim(args.integer(1), self.rank());
  index = checked_index(c, index, self.dim(dim), /*wrap=*/false, Access::kRead);
  return {b.reshape(take_dim(b, self, dim, index), c.out().shape)};
}

Values take(Context& c, const Args& args) {
  Value index = checked_index(c, args.tensor(1), args.tensor(0).numel(), /*wrap=*/true, Access::kRead);
  return {take_flat(c.b, args.tensor(0), index)};
}

// put_(self, index, source, accumulate)
Values put(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = args.tensor(0);
  Value index = checked_index(c, args.tensor(1), self.numel(), /*wrap=*/true, Access::kWrite);
  Value source = b.convert(args.tensor(2), self.dtype());
  return {scatter_flat(b, self, index, source, args.flag_or(3, false) ? Combine::kAdd : Combine::kReplace)};
}

// index_fill_(self, dim, index, value): the index marks rows of a mask, so the fill itself stays elementwise.
Values index_fill(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = at_least_1d(b, args.tensor(0)), index = at_least_1d(b, args.tensor(2));
  int64_t dim = wrap_dim(args.integer(1), self.rank());
  index = checked_index(c, index, self.dim(dim), /*wrap=*/true, Access::kWrite);
  Value hit = b.zeros({DType::kBool, {self.dim(dim)}});
  hit = scatter_rows(b, hit, 0, index, b.ones({DType::kBool, index.shape()}), Combine::kReplace);
  Value filled =
      b.select(b.broadcast_in_dim(hit, self.shape(), {dim}), as(c, args, 3, self.dtype(), self.shape()), self);
  return {b.reshape(filled, args.tensor(0).shape())};
}

// The row-major number (1-based, i32 or i64) of each true element among the true ones, flattened.
Value running_count(Context& c, Value mask) {
  Value flat = c.b.reshape(mask, {mask.numel()});
  DType dtype = mask.numel() < (int64_t{1} << 31) ? DType::kI32 : DType::kI64;
  return running_sum(c, {c.b, c.b.convert(flat, dtype)}, 0);
}

// masked_scatter_(self, mask, source): the k-th true element takes source's k-th element.
Values masked_scatter(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = args.tensor(0), source = args.tensor(2);
  const Shape& shape = self.shape();
  if (DType mask = args.tensor(1).dtype(); !is_bool(mask)) {
    return {c.fail("only supports boolean masks, but got mask with dtype " + std::string(torch_name(mask)))};
  }
  Value mask = as(c, args.tensor(1), DType::kBool, shape);
  if (self.numel() == 0 || source.numel() == 0) return {self};
  Value count = running_count(c, mask);
  Value one = b.constant_int(count.type(), 1);
  Value rank =
      b.clamp(b.scalar_int(count.dtype(), 0), b.sub(count, one), b.scalar_int(count.dtype(), source.numel() - 1));
  Value taken = b.reshape(take_flat(b, b.convert(source, self.dtype()), rank), shape);
  return {b.select(mask, taken, self)};
}

// Positions of the first `size` true elements of mask in row-major order (clamped), and which of them exist.
std::pair<Value, Value> true_positions(Context& c, Value mask, int64_t size) {
  Builder& b = c.b;
  Value count = running_count(c, mask);
  Value rank = b.add(b.iota({count.dtype(), {size}}, 0), b.constant_int({count.dtype(), {size}}, 1));
  Value total = b.slice(count, {mask.numel() - 1}, {mask.numel()});
  Value exists = b.le(rank, b.broadcast_in_dim(total, {size}, {0}));
  Value positions = search_sorted(b, count, rank, /*right=*/false);
  return {b.clamp(b.scalar_int(DType::kI64, 0), positions, b.scalar_int(DType::kI64, mask.numel() - 1)), exists};
}

// masked_scatter_backward(grad, mask, sizes): the masked elements of grad, then zeros up to the source's size.
Values masked_scatter_backward(Context& c, const Args& args) {
  Builder& b = c.b;
  Value grad = args.tensor(0);
  int64_t size = element_count(c.out().shape);
  if (size == 0 || grad.numel() == 0) return {b.zeros(c.out())};
  auto [positions, exists] = true_positions(c, as(c, args.tensor(1), DType::kBool, grad.shape()), size);
  Value taken = take_flat(b, b.convert(grad, c.out().dtype), positions);
  return {b.reshape(b.select(exists, taken, b.zeros(taken.type())), c.out().shape)};
}

// nonzero_static(self, size, fill_value) -> i64 [size, rank]
Values nonzero_static(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = args.tensor(0);
  int64_t size = c.out().shape[0];
  Type column{DType::kI64, {size, 1}};
  Value fill = b.constant_int(column, args.integer_or(2, -1));
  if (element_count(c.out().shape) == 0) return {b.zeros(c.out())};
  if (self.numel() == 0) return {b.broadcast(fill, c.out().shape)};
  auto [positions, exists] = true_positions(c, b.convert(self, DType::kBool), size);
  positions = b.unsqueeze(positions, 1);
  exists = b.unsqueeze(exists, 1);
  std::vector<int64_t> strides = contiguous_strides(self.shape());
  Values columns;
  for (int64_t d = 0; d < self.rank(); ++d) {
    Value coordinate = b.div(positions, b.constant_int(column, strides[d]));
    coordinate = b.rem(coordinate, b.constant_int(column, self.dim(d)));
    columns.push_back(b.select(exists, coordinate, fill));
  }
  return {b.concatenate(columns, 1)};
}

// select_scatter(self, src, dim, index)
Values select_scatter(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = args.tensor(0);
  int64_t dim = wrap_dim(args.integer(2), self.rank()), index = args.integer(3);
  if (index < 0) index += self.dim(dim);
  Value src = b.convert(b.unsqueeze(args.tensor(1), dim), self.dtype());
  if (src.numel() == 0) return {self};
  Values starts(self.rank(), b.scalar_int(DType::kI64, 0));
  starts[dim] = b.scalar_int(DType::kI64, index);
  return {b.dynamic_update_slice(self, src, starts)};
}

// slice_scatter(self, src, dim, start, end, step)
Values slice_scatter(Context& c, const Args& args) {
  Builder& b = c.b;
  Value self = args.tensor(0), src = b.convert(args.tensor(1), self.dtype());
  int64_t dim = wrap_dim(args.integer_or(2, 0), self.rank()), size = self.dim(dim);
  int64_t start = args.integer_or(3, 0), step = args.integer_or(5, 1);
  if (start < 0) start += size;
  start = std::clamp<int64_t>(start, 0, size);
  if (src.numel() == 0) return {self};
  if (step == 1) {
    Values starts(self.rank(), b.scalar_int(DType::kI64, 0));
    starts[dim] = b.scalar_int(DType::kI64, start);
    return {b.dynamic_update_slice(self, src, starts)};
  }
  int64_t covered = (src.dim(dim) - 1) * step + 1;
  Dims low(self.rank(), 0), high(self.rank(), 0), interior(self.rank(), 0);
  low[dim] = start;
  high[dim] = size - start - covered;
  interior[dim] = step - 1;
  Value mask = b.pad(b.ones({DType::kBool, src.shape()}), b.zeros({DType::kBool, {}}), low, high, interior);
  return {b.select(mask, b.pad(src, b.scalar_int(self.dtype(), 0), low, high, interior), self)};
}

}  // namespace

void add_indexing_rows(Rows& rows) {
  for (const char* name : {"aten::index.Tensor", "aten::_unsafe_index.Tensor"}) {
    rows.push_back(Row{name, index_tensor}.as_indexing());
  }
  for (const char* name : {"aten::index_put", "aten::_index_put_impl_", "aten::_unsafe_index_put"}) {
    rows.push_back(Row{name, index_put}.as_indexing());
  }
  rows.push_back(Row{"aten::gather", gather}.as_indexing());
  rows.push_back(Row{"aten::index_select", index_select}.as_indexing());
  rows.push_back(Row{"aten::take", take}.as_indexing());
  rows.push_back(Row{"aten::put_", put}.as_indexing());
  rows.push_back(Row{"aten::index_fill_.int_Scalar", index_fill}.as_indexing());
  rows.push_back(Row{"aten::index_fill_.int_Tensor", index_fill}.as_indexing());
  rows.push_back(Row{"aten::masked_scatter_", masked_scatter});
  rows.push_back(Row{"aten::masked_scatter_backward", masked_scatter_backward});
  rows.push_back(Row{"aten::nonzero_static", nonzero_static});
  rows.push_back(Row{"aten::select_scatter", select_scatter});
  rows.push_back(Row{"aten::slice_scatter", slice_scatter});
  add_scatter_rows(rows);
  add_embedding_rows(rows);
  add_segment_rows(rows);
}

}  // namespace torch_tpu::ops
