// Max pooling with indices. Windows are separable: the maximum along the last dimension first, then along the others,
// carrying the flat position of the winner. Rows above and columns to the left win ties, as on CPU.
#include "ops/pooling.h"

#include <algorithm>
#include <limits>

#include "ops/indexing.h"
#include "ops/promote.h"

namespace torch_tpu::ops {
namespace {

// Up to this size a window is written out as slices, which XLA fuses into one loop; beyond, it is a reduce_window.
constexpr int64_t kUnrolledWindow = 16;
// Windows of up to this many elements are written out over all dimensions at once.
constexpr int64_t kUnrolledElements = 32;

struct Best {
  Value value, position;
};

Best pool_dim_unrolled(Builder& b, const Best& in, int64_t dim, int64_t outputs, const PoolWindow& w, int64_t i) {
  Best best;
  for (int64_t k = 0; k < w.kernel[i]; ++k) {
    int64_t start = k * w.dilation[i], limit = start + (outputs - 1) * w.stride[i] + 1;
    Value value = b.slice_dim(in.value, dim, start, limit, w.stride[i]);
    Value position = b.slice_dim(in.position, dim, start, limit, w.stride[i]);
    if (k == 0) {
      best = {value, position};
    } else {
      Values kept = larger(b, best.value, best.position, value, position);
      best = {kept[0], kept[1]};
    }
  }
  return best;
}

Best pool_dim_window(Builder& b, const Best& in, int64_t dim, const PoolWindow& w, int64_t i) {
  auto rank = static_cast<size_t>(in.value.rank());
  hlo::Window window{Dims(rank, 1), Dims(rank, 1), Dims(rank, 1), Dims(rank, 1), Dims(rank, 0), Dims(rank, 0)};
  window.dims[dim] = w.kernel[i];
  window.strides[dim] = w.stride[i];
  window.window_dilations[dim] = w.dilation[i];
  Values inits = {b.min_value({in.value.dtype(), {}}), b.scalar_int(in.position.dtype(), -1)};
  auto body = [](Builder& rb, const Values& v) -> Values { return larger(rb, v[0], v[1], v[2], v[3]); };
  Values found = b.reduce_window({in.value, in.position}, inits, window, body);
  return {found[0], found[1]};
}

// One dimension: pads (or cuts, where the last window ends early) and takes the maximum of each window.
Best pool_dim(Builder& b, Best in, int64_t dim, int64_t outputs, const PoolWindow& w, int64_t i) {
  int64_t reach = (outputs - 1) * w.stride[i] + (w.kernel[i] - 1) * w.dilation[i] + 1;
  Dims low(in.value.rank(), 0), high(in.value.rank(), 0);
  low[dim] = w.padding[i];
  high[dim] = reach - w.padding[i] - in.value.dim(dim);
  if (low[dim] != 0 || high[dim] != 0) {
    in.value = b.pad(in.value, b.min_value({in.value.dtype(), {}}), low, high);
    in.position = b.pad(in.position, b.scalar_int(in.position.dtype(), -1), low, high);
  }
  return w.kernel[i] <= kUnrolledWindow ? pool_dim_unrolled(b, in, dim, outputs, w, i)
                                        : pool_dim_window(b, in, dim, w, i);
}

// Offset number n of a window as one offset per dimension, row-major.
Dims window_offset(const PoolWindow& w, int64_t n) {
  Dims offset(w.dims());
  for (int64_t i = w.dims() - 1; i >= 0; --i) {
    offset[i] = n % w.kernel[i];
    n /= w.kernel[i];
  }
  return offset;
}

// The input position that element `number` (row-major, in the window) of each window has.
Value position_of_number(Builder& b, Value number, const Shape& in, const PoolWindow& w) {
  int64_t leading = number.rank() - w.dims();
  Value position, rest = number;
  int64_t stride = 1;
  for (int64_t i = w.dims() - 1; i >= 0; --i) {
    int64_t dim = leading + i;
    Value size = b.constant_int(rest.type(), w.kernel[i]), offset = i == 0 ? rest : b.rem(rest, size);
    if (i > 0) rest = b.div(rest, size);
    std::vector<int64_t> first, start;
    for (int64_t o = 0; o < number.dim(dim); ++o) {
      int64_t origin = o * w.stride[i] - w.padding[i];
      int64_t skipped = origin < 0 ? (-origin + w.dilation[i] - 1) / w.dilation[i] : 0;
      start.push_back(origin);
      first.push_back(origin + skipped * w.dilation[i]);
    }
    auto along = [&](const std::vector<int64_t>& v) {
      return b.broadcast_in_dim(b.vector_int(number.dtype(), v), number.shape(), {dim});
    };
    // Only a window of nothing but -inf keeps its first element when that is padding: then the first real one is meant.
    Value at = b.add(along(start), b.mul(offset, b.constant_int(offset.type(), w.dilation[i])));
    at = b.max(at, along(first));
    at = b.mul(at, b.constant_int(at.type(), stride));
    position = position ? b.add(position, at) : at;
    stride *= in[dim];
  }
  return position;
}

// Small windows: all elements of a window side by side, as strided slices that fuse into one loop. It remembers which
// element won, not where it is, so that only values are read.
Best pool_unrolled(Builder& b, Value x, const Shape& out, const PoolWindow& w) {
  int64_t leading = x.rank() - w.dims();
  Shape in = x.shape();
  Dims low(x.rank(), 0), high(x.rank(), 0);
  for (int64_t i = 0; i < w.dims(); ++i) {
    int64_t dim = leading + i;
    low[dim] = w.padding[i];
    high[dim] = (out[dim] - 1) * w.stride[i] + (w.kernel[i] - 1) * w.dilation[i] + 1 - w.padding[i] - in[dim];
  }
  x = b.pad(x, b.min_value({x.dtype(), {}}), low, high);
  Value best, number;
  for (int64_t n = 0, count = element_count(w.kernel); n < count; ++n) {
    Dims offset = window_offset(w, n), start(x.rank(), 0), limit = x.shape(), step(x.rank(), 1);
    for (int64_t i = 0; i < w.dims(); ++i) {
      int64_t dim = leading + i;
      start[dim] = offset[i] * w.dilation[i];
      limit[dim] = start[dim] + (out[dim] - 1) * w.stride[i] + 1;
      step[dim] = w.stride[i];
    }
    Value value = b.slice(x, start, limit, step);
    Value mine = b.constant_int({DType::kI32, out}, n);
    if (n == 0) {
      best = value;
      number = mine;
      continue;
    }
    Value take = b.gt(value, best);
    if (is_float(value.dtype())) take = b.logical_or(take, b.is_nan(value));
    best = b.select(take, value, best);
    number = b.select(take, mine, number);
  }
  return {best, position_of_number(b, number, in, w)};
}

// max_poolNd_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
Rule max_pool(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    Value x = args.tensor(0);
    if (element_count(c.out().shape) == 0) return {b.zeros(c.out(0)), b.zeros(c.out(1))};
    PoolWindow w = pool_window(dims, args.ints(1), args.ints_or(2, {}), args.ints_or(3, {0}), args.ints_or(4, {1}));
    if (element_count(w.kernel) <= kUnrolledElements) {
      Best best = pool_unrolled(b, x, c.out().shape, w);
      return {best.value, b.convert(best.position, c.out(1).dtype)};
    }
    Best best{x, spatial_positions(b, x.shape(), dims)};
    for (int64_t i = dims - 1; i >= 0; --i) {
      int64_t dim = x.rank() - dims + i;
      best = pool_dim(b, best, dim, c.out().shape[dim], w, i);
    }
    return {best.value, b.convert(best.position, c.out(1).dtype)};
  };
}

// Repeats each element along the last dimensions, as often as `times` says for each.
Value repeat_spatial(Builder& b, Value x, const std::vector<int64_t>& times, const Shape& out) {
  Shape wide;
  Dims where;
  int64_t leading = x.rank() - static_cast<int64_t>(times.size());
  for (int64_t d = 0; d < x.rank(); ++d) {
    where.push_back(static_cast<int64_t>(wide.size()));
    wide.push_back(x.dim(d));
    if (d >= leading) wide.push_back(times[d - leading]);
  }
  return b.reshape(b.broadcast_in_dim(x, wide, where), out);
}

// For every input position, x at the `back`-th last window that starts at or before it; `none` where there is no such
// window.
Value at_window(Builder& b, Value x, int64_t none, const Shape& in, const PoolWindow& w, const Dims& back) {
  int64_t leading = x.rank() - w.dims();
  Dims low(x.rank(), 0), high(x.rank(), 0), start(x.rank(), 0);
  Shape wide = x.shape();
  for (int64_t i = 0; i < w.dims(); ++i) {
    int64_t dim = leading + i;
    int64_t windows = (in[dim] + w.padding[i] + w.stride[i] - 1) / w.stride[i];
    low[dim] = back[i];
    high[dim] = windows - x.dim(dim) - back[i];
    start[dim] = w.padding[i];
    wide[dim] = windows * w.stride[i];
  }
  Value shifted = b.pad(x, b.scalar_int(x.dtype(), none), low, high);
  Dims limit = in;
  for (int64_t i = 0; i < w.dims(); ++i) limit[leading + i] += w.padding[i];
  return b.slice(repeat_spatial(b, shifted, w.stride, wide), start, limit);
}

// Each input collects the gradients of the windows that cover it and whose maximum it is. No scatter: windows are few.
Value gradient_by_windows(Builder& b, Value grad, Value indices, Value positions, const PoolWindow& w) {
  PoolWindow candidates;
  for (int64_t i = 0; i < w.dims(); ++i) {
    candidates.kernel.push_back(((w.kernel[i] - 1) * w.dilation[i] + w.stride[i]) / w.stride[i]);
  }
  Value sum;
  for (int64_t n = 0, count = element_count(candidates.kernel); n < count; ++n) {
    Dims back = window_offset(candidates, n);
    Value mine = b.eq(at_window(b, indices, -1, positions.shape(), w, back), positions);
    Value part = at_window(b, grad, 0, positions.shape(), w, back);
    part = b.select(mine, part, b.zeros(part.type()));
    sum = sum ? b.add(sum, part) : part;
  }
  return sum;
}

// max_poolNd_with_indices_backward(grad, self, kernel_size, stride, padding, dilation, ceil_mode, indices)
Rule max_pool_backward(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    const Type& out = c.out();
    Value grad = args.tensor(0), indices = args.tensor(7);
    if (grad.numel() == 0 || element_count(out.shape) == 0) return {b.zeros(out)};
    PoolWindow w = pool_window(dims, args.ints(2), args.ints_or(3, {}), args.ints_or(4, {0}), args.ints_or(5, {1}));
    grad = b.convert(grad, compute_dtype(out.dtype));
    Value positions = spatial_positions(b, out.shape, dims), result;
    indices = b.convert(indices, positions.dtype());
    if (element_count(w.kernel) <= 4 * kUnrolledWindow) {
      result = gradient_by_windows(b, grad, indices, positions, w);
    } else {
      result = scatter_spatial(b, grad, indices, {grad.dtype(), out.shape}, dims, /*add=*/true);
    }
    return {b.convert(result, out.dtype)};
  };
}

}  // namespace

PoolWindow pool_window(int64_t dims, std::vector<int64_t> kernel, std::vector<int64_t> stride,
                       std::vector<int64_t> padding, std::vector<int64_t> dilation) {
  if (stride.empty()) stride = kernel;
  PoolWindow w{std::move(kernel), std::move(stride), std::move(padding), std::move(dilation)};
  for (std::vector<int64_t>* v : {&w.kernel, &w.stride, &w.padding, &w.dilation}) {
    if (v->empty()) v->push_back(1);
    v->resize(dims, v->front());
  }
  return w;
}

Value spatial_positions(Builder& b, const Shape& shape, int64_t dims) {
  Shape spatial(shape.end() - dims, shape.end());
  int64_t count = element_count(spatial);
  DType dtype = count < std::numeric_limits<int32_t>::max() ? DType::kI32 : DType::kI64;
  Dims where;
  for (auto d = static_cast<int64_t>(shape.size()) - dims; d < static_cast<int64_t>(shape.size()); ++d)
    where.push_back(d);
  return b.broadcast_in_dim(b.reshape(b.iota({dtype, {count}}, 0), spatial), shape, where);
}

Values larger(Builder& b, Value value, Value position, Value other, Value other_position) {
  Value zero = b.zeros(position.type());
  Value take = b.logical_or(b.gt(other, value), b.lt(position, zero));
  if (is_float(value.dtype())) take = b.logical_or(take, b.is_nan(other));
  take = b.logical_and(take, b.ge(other_position, zero));
  return {b.select(take, other, value), b.select(take, other_position, position)};
}

Value scatter_spatial(Builder& b, Value grad, Value positions, const Type& out, int64_t dims, bool add) {
  auto flat = [&](Value x) {
    Shape shape(x.shape().begin(), x.shape().end() - dims);
    int64_t planes = element_count(shape);
    return b.reshape(x, {planes, x.numel() / std::max<int64_t>(1, planes)});
  };
  Value base = flat(b.zeros(out));
  Combine combine = add ? Combine::kAdd : Combine::kReplace;
  return b.reshape(scatter_dim(b, base, 1, flat(positions), flat(grad), combine), out.shape);
}

void add_pooling_rows(Rows& rows) {
  rows.push_back(Row{"aten::max_pool2d_with_indices", max_pool(2)});
  rows.push_back(Row{"aten::max_pool3d_with_indices", max_pool(3)});
  rows.push_back(Row{"aten::max_pool2d_with_indices_backward", max_pool_backward(2)});
  rows.push_back(Row{"aten::max_pool3d_with_indices_backward", max_pool_backward(3)});
  add_average_pooling_rows(rows);
  add_adaptive_pooling_rows(rows);
  add_fractional_pooling_rows(rows);
}

}  // namespace torch_tpu::ops
