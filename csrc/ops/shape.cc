// Ops that move elements without computing on them: cat, stack, flip, roll, repeat, constant padding, shuffles,
// diagonals, and the backwards of views.
#include "ops/shape.h"

#include <algorithm>
#include <numeric>

#include "ops/indexing.h"
#include "ops/promote.h"
#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

// cat(tensors, dim); 1-D tensors of size 0 are skipped whatever the others' rank is, as PyTorch has always done.
Values cat(Context& c, const Args& args) {
  Builder& b = c.b;
  int64_t rank = static_cast<int64_t>(c.out().shape.size());
  int64_t dim = wrap_dim(args.integer_or(1, 0), rank);
  Values parts;
  for (Value x : args.tensors(0)) {
    bool legacy_empty = x.rank() == 1 && x.dim(0) == 0;
    if (!legacy_empty && x.dim(dim) > 0) parts.push_back(b.convert(x, c.out().dtype));
  }
  if (parts.empty() || element_count(c.out().shape) == 0) return {b.zeros(c.out())};
  return {parts.size() == 1 ? parts[0] : b.concatenate(parts, dim)};
}

Values stack(Context& c, const Args& args) {
  Builder& b = c.b;
  int64_t dim = wrap_dim(args.integer_or(1, 0), static_cast<int64_t>(c.out().shape.size()));
  if (element_count(c.out().shape) == 0) return {b.zeros(c.out())};
  Values parts;
  for (Value x : args.tensors(0)) parts.push_back(b.unsqueeze(b.convert(x, c.out().dtype), dim));
  return {parts.size() == 1 ? parts[0] : b.concatenate(parts, dim)};
}

Values flip(Context& c, const Args& args) {
  Value x = args.tensor(0);
  const std::vector<int64_t>& named = args.ints(1);
  if (named.empty() || x.rank() == 0 || x.numel() == 0) return {x};
  return {c.b.reverse(x, wrap_dims(named, x.rank()))};
}

// narrow_copy(self, dim, start, length)
Values narrow_copy(Context& c, const Args& args) {
  Value x = args.tensor(0);
  int64_t dim = wrap_dim(args.integer(1), x.rank()), start = args.integer(2);
  if (start < 0) start += x.dim(dim);
  return {c.b.slice_dim(x, dim, start, start + args.integer(3))};
}

Value roll_dim(Builder& b, Value x, int64_t dim, int64_t shift) {
  int64_t n = x.dim(dim);
  int64_t cut = n == 0 ? 0 : ((-shift % n) + n) % n;
  if (cut == 0) return x;
  return b.concatenate({b.slice_dim(x, dim, cut, n), b.slice_dim(x, dim, 0, cut)}, dim);
}

// roll(self, shifts, dims); without dims the flattened tensor is rolled.
Values roll(Context& c, const Args& args) {
  Builder& b = c.b;
  Value x = args.tensor(0);
  std::vector<int64_t> dims = args.ints_or(2, {});
  if (x.numel() == 0) return {x};
  if (dims.empty()) return {b.reshape(roll_dim(b, b.reshape(x, {x.numel()}), 0, args.ints(1)[0]), x.shape())};
  for (size_t i = 0; i < dims.size(); ++i) x = roll_dim(b, x, wrap_dim(dims[i], x.rank()), args.ints(1)[i]);
  return {x};
}

Values repeat(Context& c, const Args& args) {
  Builder& b = c.b;
  Value x = args.tensor(0);
  const std::vector<int64_t>& repeats = args.ints(1);
  if (element_count(c.out().shape) == 0) return {b.zeros(c.out())};
  int64_t added = static_cast<int64_t>(repeats.size()) - x.rank();
  // Each dimension of size s becomes (r, s), then the pairs are joined.
  Shape pairs;
  Dims where;
  for (size_t i = 0; i < repeats.size(); ++i) {
    auto d = static_cast<int64_t>(i) - added;
    if (repeats[i] != 1 || d < 0) pairs.push_back(repeats[i]);
    if (d < 0) continue;
    where.push_back(static_cast<int64_t>(pairs.size()));
    pairs.push_back(x.dim(d));
  }
  return {b.reshape(b.broadcast_in_dim(x, pairs, where), c.out().shape)};
}

// repeat_interleave.Tensor(repeats, output_size): position k of the result lies in the run of the first element whose
// running total exceeds k.
Values repeat_interleave(Context& c, const Args& args) {
  Builder& b = c.b;
  Value repeats = args.tensor(0);
  if (element_count(c.out().shape) == 0 || repeats.numel() == 0) return {b.zeros(c.out())};
  Value total = running_sum(c, {b, b.convert(repeats, DType::kI64)}, 0);
  Value found = search_sorted(b, total, b.iota({DType::kI64, c.out().shape}, 0), /*right=*/true);
  return {b.convert(found, c.out().dtype)};
}

// constant_pad_nd(self, pad, value); negative padding cuts.
Values constant_pad(Context& c, const Args& args) {
  Builder& b = c.b;
  Value x = args.tensor(0);
  const std::vector<int64_t>& pad = args.ints(1);
  Value value = args.none(2) ? b.scalar_int(x.dtype(), 0) : as(c, args, 2, x.dtype(), {});
  if (x.numel() == 0) return {b.broadcast(value, c.out().shape)};
  Dims low(x.rank(), 0), high(x.rank(), 0);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    low[x.rank() - 1 - i] = pad[2 * i];
    high[x.rank() - 1 - i] = pad[2 * i + 1];
  }
  return {b.pad(x, value, low, high)};
}

// Splits and permutes the last dimensions: [.., shape of `split`] reordered by `order`, then joined to `out`.
Value rearrange(Builder& b, Value x, int64_t keep, const Shape& split, const Dims& order, const Shape& out) {
  Shape wide(x.shape().begin(), x.shape().begin() + keep);
  wide.insert(wide.end(), split.begin(), split.end());
  Dims permutation(keep);
  std::iota(permutation.begin(), permutation.end(), 0);
  for (int64_t o : order) permutation.push_back(keep + o);
  return b.reshape(b.transpose(b.reshape(x, wide), permutation), out);
}

Values pixel_shuffle(Context& c, const Args& args) {
  Value x = args.tensor(0);
  int64_t r = args.integer(1);
  if (x.numel() == 0) return {c.b.zeros(c.out())};
  Shape split = {x.dim(-3) / (r * r), r, r, x.dim(-2), x.dim(-1)};
  return {rearrange(c.b, x, x.rank() - 3, split, {0, 3, 1, 4, 2}, c.out().shape)};
}

Values pixel_unshuffle(Context& c, const Args& args) {
  Value x = args.tensor(0);
  int64_t r = args.integer(1);
  if (x.numel() == 0) return {c.b.zeros(c.out())};
  Shape split = {x.dim(-3), x.dim(-2) / r, r, x.dim(-1) / r, r};
  return {rearrange(c.b, x, x.rank() - 3, split, {0, 2, 4, 1, 3}, c.out().shape)};
}

Values channel_shuffle(Context& c, const Args& args) {
  Value x = args.tensor(0);
  int64_t groups = args.integer(1);
  if (x.numel() == 0) return {x};
  Shape split = {groups, x.dim(1) / groups};
  Dims order = {1, 0};
  for (int64_t d = 2; d < x.rank(); ++d) {
    split.push_back(x.dim(d));
    order.push_back(d);
  }
  return {rearrange(c.b, x, 1, split, order, x.shape())};
}

// _chunk_cat(tensors, dim, num_chunks): each tensor is padded to whole chunks, chunks become a dimension, and the
// flattened rests are joined.
Values chunk_cat(Context& c, const Args& args) {
  Builder& b = c.b;
  int64_t dim = args.integer(1), chunks = args.integer(2);
  Values parts;
  for (Value x : args.tensors(0)) {
    int64_t d = wrap_dim(dim, x.rank());
    int64_t missing = (chunks - x.dim(d) % chunks) % chunks;
    Dims low(x.rank(), 0), high(x.rank(), 0);
    high[d] = missing;
    x = b.convert(x, c.out().dtype);
    if (missing > 0) x = b.pad(x, b.scalar_int(x.dtype(), 0), low, high);
    Shape shape(x.shape().begin(), x.shape().begin() + d);
    int64_t outer = element_count(shape);
    shape.push_back(chunks);
    shape.push_back(x.numel() / std::max<int64_t>(1, outer * chunks));
    parts.push_back(b.reshape(x, shape));
    dim = d;
  }
  return {b.reshape(b.concatenate(parts, dim + 1), c.out().shape)};
}

// block_diag(tensors): 0-d and 1-d tensors are rows.
Values block_diag(Context& c, const Args& args) {
  Builder& b = c.b;
  if (element_count(c.out().shape) == 0) return {b.zeros(c.out())};
  int64_t width = c.out().shape[1], column = 0;
  Values rows;
  Value zero = b.scalar_int(c.out().dtype, 0);
  for (Value x : args.tensors(0)) {
    if (x.rank() < 2) x = b.reshape(x, {1, x.numel()});
    int64_t columns = x.dim(1);
    x = b.convert(x, c.out().dtype);
    if (x.dim(0) > 0) {
      bool filled = x.numel() > 0;
      rows.push_back(filled ? b.pad(x, zero, {0, column}, {0, width - column - columns})
                            : b.zeros({x.dtype(), {x.dim(0), width}}));
    }
    column += columns;
  }
  return {b.concatenate(rows, 0)};
}

// Writes `source` (diagonal last) onto the diagonal of base's dimensions dim1, dim2.
Value write_diagonal(Builder& b, Value base, Value source, int64_t offset, int64_t dim1, int64_t dim2) {
  if (source.numel() == 0 || base.numel() == 0) return base;
  int64_t rank = base.rank(), rows = base.dim(dim1), first = std::max<int64_t>(-offset, 0);
  int64_t length = source.dim(-1);
  Dims low(source.rank(), 0), high(source.rank(), 0), where;
  low.back() = first;
  high.back() = rows - first - length;
  Value by_row = b.pad(source, b.scalar_int(source.dtype(), 0), low, high);
  for (int64_t d = 0; d < rank; ++d) {
    if (d != dim1 && d != dim2) where.push_back(d);
  }
  // The diagonal runs along dim1; broadcast_in_dim wants ascending dimensions, so it is moved among the others first.
  auto at = std::lower_bound(where.begin(), where.end(), dim1) - where.begin();
  Dims permutation(by_row.rank());
  std::iota(permutation.begin(), permutation.end(), 0);
  permutation.pop_back();
  permutation.insert(permutation.begin() + at, by_row.rank() - 1);
  where.insert(where.begin() + at, dim1);
  Value wide = b.broadcast_in_dim(b.transpose(by_row, permutation), base.shape(), where);
  Type index{DType::kI64, base.shape()};
  Value on = b.eq(b.sub(b.iota(index, dim2), b.iota(index, dim1)), b.constant_int(index, offset));
  return b.select(on, wide, base);
}

// diag_embed(self, offset, dim1, dim2)
Values diag_embed(Context& c, const Args& args) {
  auto rank = static_cast<int64_t>(c.out().shape.size());
  int64_t dim1 = wrap_dim(args.integer_or(2, -2), rank), dim2 = wrap_dim(args.integer_or(3, -1), rank);
  return {write_diagonal(c.b, c.b.zeros(c.out()), args.tensor(0), args.integer_or(1, 0), dim1, dim2)};
}

// diagonal_backward(grad, input_sizes, offset, dim1, dim2)
Values diagonal_backward(Context& c, const Args& args) {
  auto rank = static_cast<int64_t>(c.out().shape.size());
  int64_t dim1 = wrap_dim(args.integer(3), rank), dim2 = wrap_dim(args.integer(4), rank);
  return {write_diagonal(c.b, c.b.zeros(c.out()), args.tensor(0), args.integer(2), dim1, dim2)};
}

// diagonal_scatter(self, src, offset, dim1, dim2)
Values diagonal_scatter(Context& c, const Args& args) {
  Value self = args.tensor(0);
  int64_t dim1 = wrap_dim(args.integer_or(3, 0), self.rank()), dim2 = wrap_dim(args.integer_or(4, 1), self.rank());
  Value source = c.b.convert(args.tensor(1), self.dtype());
  return {write_diagonal(c.b, self, source, args.integer_or(2, 0), dim1, dim2)};
}

// select_backward(grad, input_sizes, dim, index)
Values select_backward(Context& c, const Args& args) {
  Builder& b = c.b;
  auto rank = static_cast<int64_t>(c.out().shape.size());
  int64_t dim = wrap_dim(args.integer(2), rank), index = args.integer(3), size = c.out().shape[dim];
  if (index < 0) index += size;
  Value grad = args.tensor(0);
  if (grad.numel() == 0) return {b.zeros(c.out())};
  Dims low(rank, 0), high(rank, 0);
  low[dim] = index;
  high[dim] = size - index - 1;
  return {b.pad(b.unsqueeze(grad, dim), b.scalar_int(grad.dtype(), 0), low, high)};
}

// slice_backward(grad, input_sizes, dim, start, end, step)
Values slice_backward(Context& c, const Args& args) {
  Builder& b = c.b;
  auto rank = static_cast<int64_t>(c.out().shape.size());
  int64_t dim = wrap_dim(args.integer(2), rank), size = c.out().shape[dim], start = args.integer(3),
          step = args.integer(5);
  Value grad = args.tensor(0);
  if (grad.numel() == 0) return {b.zeros(c.out())};
  if (start < 0) start += size;
  start = std::clamp<int64_t>(start, 0, size);
  Dims low(rank, 0), high(rank, 0), interior(rank, 0);
  low[dim] = start;
  high[dim] = size - start - ((grad.dim(dim) - 1) * step + 1);
  interior[dim] = step - 1;
  return {b.pad(grad, b.scalar_int(grad.dtype(), 0), low, high, interior)};
}

// linalg_cross(self, other, dim)
Values linalg_cross(Context& c, const Args& args) {
  Builder& b = c.b;
  const Type& out = c.out();
  if (element_count(out.shape) == 0) return {b.zeros(out)};
  DType dtype = compute_dtype(out.dtype);
  Value x = as(c, args, 0, dtype, out.shape), y = as(c, args, 1, dtype, out.shape);
  int64_t dim = wrap_dim(args.integer_or(2, -1), x.rank());
  auto part = [&](Value v, int64_t i) { return b.slice_dim(v, dim, i, i + 1); };
  Values parts;
  for (int64_t i = 0; i < 3; ++i) {
    int64_t j = (i + 1) % 3, k = (i + 2) % 3;
    parts.push_back(b.sub(b.mul(part(x, j), part(y, k)), b.mul(part(x, k), part(y, j))));
  }
  return {b.convert(b.concatenate(parts, dim), out.dtype)};
}

}  // namespace

void add_shape_rows(Rows& rows) {
  rows.push_back(Row{"aten::cat", cat});
  rows.push_back(Row{"aten::stack", stack});
  rows.push_back(Row{"aten::_stack", stack});
  rows.push_back(Row{"aten::flip", flip});
  rows.push_back(Row{"aten::roll", roll});
  rows.push_back(Row{"aten::repeat", repeat});
  rows.push_back(Row{"aten::repeat_interleave.Tensor", repeat_interleave});
  rows.push_back(Row{"aten::narrow_copy", narrow_copy});
  rows.push_back(Row{"aten::constant_pad_nd", constant_pad});
  rows.push_back(Row{"aten::pixel_shuffle", pixel_shuffle});
  rows.push_back(Row{"aten::pixel_unshuffle", pixel_unshuffle});
  rows.push_back(Row{"aten::channel_shuffle", channel_shuffle});
  rows.push_back(Row{"aten::_chunk_cat", chunk_cat});
  rows.push_back(Row{"aten::block_diag", block_diag});
  rows.push_back(Row{"aten::diag_embed", diag_embed});
  rows.push_back(Row{"aten::diagonal_backward", diagonal_backward});
  rows.push_back(Row{"aten::diagonal_scatter", diagonal_scatter});
  rows.push_back(Row{"aten::select_backward", select_backward});
  rows.push_back(Row{"aten::slice_backward", slice_backward});
  rows.push_back(Row{"aten::linalg_cross", linalg_cross});
  add_window_rows(rows);
  add_distance_rows(rows);
}

}  // namespace torch_tpu::ops
