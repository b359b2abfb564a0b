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
  return w.kernel[i] <= kUnrolledWindow ? pool_dim_unrolled(b, in, dim, outputs, w, i) : pool_dim_window(b, in, dim, w, i);
}

// max_poolNd_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
Rule max_pool(int64_t dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    Value x = args.tensor(0);
    if (element_count(c.out().shape) == 0) return {b.zeros(c.out(0)), b.zeros(c.out(1))};
    PoolWindow w = pool_window(dims, args.ints(1), args.ints_or(2, {}), args.ints_or(3, {0}), args.ints_or(4, {1}));
    Best best{x, spatial_positions(b, x.shape(), dims)};
    for (int64_t i = dims - 1; i >= 0; --i) {
      int64_t dim = x.rank() - dims + i;
      best = pool_dim(b, best, dim, c.out().shape[dim], w, i);
    }
    return {best.value, b.convert(best.position, c.out(1).dtype)};
  };
}

// Windows that tile the input without gaps or overlap: every input belongs to one window at most.
bool tiles(const PoolWindow& w, const Shape& in, const Shape& out) {
  for (int64_t i = 0; i < w.dims(); ++i) {
    auto dim = static_cast<int64_t>(in.size()) - w.dims() + i;
    if (w.kernel[i] != w.stride[i] || w.padding[i] != 0 || w.dilation[i] != 1) return false;
    if (out[dim] * w.kernel[i] != in[dim]) return false;
  }
  return true;
}

// Repeats each element kernel times along the spatial dimensions.
Value expand_windows(Builder& b, Value x, const PoolWindow& w, const Shape& out) {
  Shape wide;
  Dims where;
  int64_t leading = x.rank() - w.dims();
  for (int64_t d = 0; d < x.rank(); ++d) {
    where.push_back(static_cast<int64_t>(wide.size()));
    wide.push_back(x.dim(d));
    if (d >= leading) wide.push_back(w.kernel[d - leading]);
  }
  return b.reshape(b.broadcast_in_dim(x, wide, where), out);
}

// The part of the gradient that comes from element `offset` of every window: grad where the window's maximum was
// there, spread to the input by padding.
Value window_element_gradient(Builder& b, Value grad, Value indices, const Shape& in, const PoolWindow& w, const Dims& offset) {
  int64_t leading = grad.rank() - w.dims();
  std::vector<int64_t> strides = contiguous_strides(Shape(in.begin() + leading, in.end()));
  Dims low(grad.rank(), 0), high(grad.rank(), 0), interior(grad.rank(), 0);
  Value expected = b.zeros(indices.type());
  for (int64_t i = 0; i < w.dims(); ++i) {
    int64_t dim = leading + i;
    int64_t first = offset[i] * w.dilation[i] - w.padding[i];
    Value position = b.mul(b.iota(indices.type(), dim), b.constant_int(indices.type(), w.stride[i] * strides[i]));
    expected = b.add(expected, b.add(position, b.constant_int(indices.type(), first * strides[i])));
    low[dim] = first;
    interior[dim] = w.stride[i] - 1;
    high[dim] = in[dim] - first - ((grad.dim(dim) - 1) * w.stride[i] + 1);
  }
  Value mine = b.select(b.eq(indices, expected), grad, b.zeros(grad.type()));
  return b.pad(mine, b.scalar_int(grad.dtype(), 0), low, high, interior);
}

Value gradient_by_windows(Builder& b, Value grad, Value indices, const Shape& in, const PoolWindow& w) {
  Value sum;
  Dims offset(w.dims(), 0);
  for (int64_t n = element_count(w.kernel), k = 0; k < n; ++k) {
    int64_t rest = k;
    for (int64_t i = w.dims() - 1; i >= 0; --i) {
      offset[i] = rest % w.kernel[i];
      rest /= w.kernel[i];
    }
    Value part = window_element_gradient(b, grad, indices, in, w, offset);
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
    if (tiles(w, out.shape, grad.shape())) {
      Value chosen = b.eq(expand_windows(b, indices, w, out.shape), positions);
      Value wide = expand_windows(b, grad, w, out.shape);
      result = b.select(chosen, wide, b.zeros(wide.type()));
    } else if (element_count(w.kernel) <= 4 * kUnrolledWindow) {
      result = gradient_by_windows(b, grad, indices, out.shape, w);
    } else {
      result = scatter_spatial(b, grad, indices, {grad.dtype(), out.shape}, dims, /*add=*/true);
    }
    return {b.convert(result, out.dtype)};
  };
}

}  // namespace

PoolWindow pool_window(int64_t dims, std::vector<int64_t> kernel, std::vector<int64_t> stride, std::vector<int64_t> padding,
                       std::vector<int64_t> dilation) {
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
  for (auto d = static_cast<int64_t>(shape.size()) - dims; d < static_cast<int64_t>(shape.size()); ++d) where.push_back(d);
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
