#include <algorithm>
#include <numeric>

#include "ops/convolution.h"
#include "ops/expr.h"

namespace torch_tpu::ops {
namespace {

using hlo::ConvWindow;

// Depthwise kernels up to 8 x 8 are sums of shifted inputs, one fused loop.
constexpr int64_t kMostTaps = 64;
// One convolution per group (32 of them compile in 0.7 s and still run twice as fast as a grouped one).
constexpr int64_t kMostGroups = 32;
// Convolutions into which the stride of a transposed one is unrolled.
constexpr int64_t kMostPhases = 16;
// Positions from which a 1 x 1 kernel is faster as a matrix product per sample.
constexpr int64_t kSmallestPlane = 512;

ConvWindow complete(ConvWindow w, int64_t spatial) {
  for (Dims* dims : {&w.strides, &w.lhs_dilation, &w.rhs_dilation})
    if (dims->empty()) dims->assign(spatial, 1);
  for (Dims* dims : {&w.pad_low, &w.pad_high})
    if (dims->empty()) dims->assign(spatial, 0);
  return w;
}

bool all_are(const Dims& dims, int64_t value) {
  return std::all_of(dims.begin(), dims.end(), [&](int64_t d) { return d == value; });
}

int64_t product(const Dims& dims) { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }

Dims spatial_of(const Value& x) { return {x.shape().begin() + 2, x.shape().end()}; }

Dims out_extents(const Value& x, const Value& w, const ConvWindow& window) {
  Dims out;
  for (size_t i = 0; i + 2 < x.shape().size(); ++i) {
    const int64_t input = (x.dim(i + 2) - 1) * window.lhs_dilation[i] + 1 + window.pad_low[i] + window.pad_high[i];
    out.push_back((input - (w.dim(i + 2) - 1) * window.rhs_dilation[i] - 1) / window.strides[i] + 1);
  }
  return out;
}

Shape with_channels(int64_t batch, int64_t channels, const Dims& spatial) {
  Shape shape{batch, channels};
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  return shape;
}

// x with the window's padding and input dilation carried out.
Value padded(Context& c, Value x, const ConvWindow& window) {
  Dims low{0, 0}, high{0, 0}, interior{0, 0};
  for (size_t i = 0; i < window.pad_low.size(); ++i) {
    low.push_back(window.pad_low[i]);
    high.push_back(window.pad_high[i]);
    interior.push_back(window.lhs_dilation[i] - 1);
  }
  if (all_are(low, 0) && all_are(high, 0) && all_are(interior, 0)) return x;
  return c.b.pad(x, c.b.zeros({x.dtype(), {}}), low, high, interior);
}

// Negative padding of an undilated dim as a slice. An empty result stands for an input that no window reaches.
Value cropped(Context& c, Value x, ConvWindow& window) {
  for (size_t i = 0; i < window.pad_low.size(); ++i) {
    if (window.lhs_dilation[i] != 1) continue;
    const int64_t from = std::max<int64_t>(-window.pad_low[i], 0), n = x.dim(i + 2);
    const int64_t to = n - std::max<int64_t>(-window.pad_high[i], 0);
    if (from >= to) return {};
    if (from > 0 || to < n) x = c.b.slice_dim(x, static_cast<int64_t>(i) + 2, from, to);
    window.pad_low[i] += from;
    window.pad_high[i] += n - to;
  }
  return x;
}

// The kernel positions [0, 0], [0, 1], ... of the spatial dims.
std::vector<Dims> positions(const Dims& extents) {
  std::vector<Dims> all{{}};
  for (int64_t n : extents) {
    std::vector<Dims> longer;
    for (const Dims& prefix : all) {
      for (int64_t k = 0; k < n; ++k) {
        longer.push_back(prefix);
        longer.back().push_back(k);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// One input channel per group: the sum over the kernel's positions of shifted inputs times a number per channel.
Value depthwise(Context& c, Value x, Value w, const ConvWindow& window) {
  const Dims out = out_extents(x, w, window), kernel = spatial_of(w);
  const auto spatial = static_cast<int64_t>(out.size());
  const int64_t batch = x.dim(0), groups = x.dim(1), each = w.dim(0) / groups;
  x = padded(c, x, window);
  Shape wide{batch, groups, each};
  wide.insert(wide.end(), out.begin(), out.end());
  Dims kept{0, 1};
  for (int64_t i = 0; i < spatial; ++i) kept.push_back(i + 3);
  Value sum;
  for (const Dims& at : positions(kernel)) {
    Dims from{0, 0}, to{batch, groups}, step{1, 1}, tap{0, 0}, tap_end{w.dim(0), 1};
    for (int64_t i = 0; i < spatial; ++i) {
      from.push_back(at[i] * window.rhs_dilation[i]);
      to.push_back(from.back() + (out[i] - 1) * window.strides[i] + 1);
      step.push_back(window.strides[i]);
      tap.push_back(at[i]);
      tap_end.push_back(at[i] + 1);
    }
    Value shifted = c.b.broadcast_in_dim(c.b.slice(x, from, to, step), wide, kept);
    Value number = c.b.reshape(c.b.slice(w, tap, tap_end), {groups, each});
    Value term = c.b.mul(shifted, c.b.broadcast_in_dim(number, wide, {1, 2}));
    sum = sum ? c.b.add(sum, term) : term;
  }
  return c.b.reshape(sum, with_channels(batch, w.dim(0), out));
}

// Three spatial dims as two: [N, C, D, H, W] becomes [N * out, C * taps, H, W], the inputs that each output depth sees.
Value stacked_depth(Context& c, Value x, const ConvWindow& window, int64_t taps, int64_t out) {
  ConvWindow depth;
  depth.pad_low = {window.pad_low[0], 0, 0};
  depth.pad_high = {window.pad_high[0], 0, 0};
  depth.lhs_dilation = {window.lhs_dilation[0], 1, 1};
  x = padded(c, x, depth);
  Values slices;
  for (int64_t k = 0; k < taps; ++k) {
    const int64_t from = k * window.rhs_dilation[0];
    slices.push_back(
        c.b.unsqueeze(c.b.slice_dim(x, 2, from, from + (out - 1) * window.strides[0] + 1, window.strides[0]), 2));
  }
  Value stack = c.b.transpose(c.b.concatenate(slices, 2), {0, 3, 1, 2, 4, 5});
  return c.b.reshape(stack, {x.dim(0) * out, x.dim(1) * taps, x.dim(3), x.dim(4)});
}

ConvWindow without_depth(ConvWindow window) {
  for (Dims* dims : {&window.strides, &window.pad_low, &window.pad_high, &window.lhs_dilation, &window.rhs_dilation})
    dims->erase(dims->begin());
  return window;
}

Value volumetric(Context& c, Value x, Value w, const ConvWindow& window, DType result) {
  const int64_t batch = x.dim(0), depth = out_extents(x, w, window)[0];
  Value stack = stacked_depth(c, x, window, w.dim(2), depth);
  Value flat = c.b.reshape(w, {w.dim(0), w.dim(1) * w.dim(2), w.dim(3), w.dim(4)});
  Value y = host_convolution(c, stack, flat, without_depth(window), result);
  return c.b.transpose(c.b.reshape(y, {batch, depth, y.dim(1), y.dim(2), y.dim(3)}), {0, 2, 1, 3, 4});
}

// An input dilated by s along one dim: the outputs at r, r + s, r + 2 s, ... see only every s-th kernel position, so
// that each r is a convolution of the undilated input, and nothing is multiplied by the zeros in between.
Value phased(Context& c, Value x, Value w, const ConvWindow& window, size_t i, DType result) {
  const auto dim = static_cast<int64_t>(i) + 2;
  const int64_t s = window.lhs_dilation[i], d = window.rhs_dilation[i], low = window.pad_low[i];
  const int64_t every = s / std::gcd(s, d), spread = d / std::gcd(s, d);
  const int64_t n = x.dim(dim), kernel = w.dim(dim);
  Dims out = out_extents(x, w, window);
  const int64_t wanted = out[i], each = (wanted + s - 1) / s;
  out[i] = each;
  Values phases;
  for (int64_t r = 0; r < s; ++r) {
    int64_t first = 0;
    while (first < every && (r + first * d - low) % s != 0) ++first;
    Value y = c.b.zeros({result, with_channels(x.dim(0), w.dim(0), out)});
    if (first < every && first < kernel) {
      Value part = c.b.slice_dim(w, dim, first, kernel, every);
      ConvWindow own = window;
      own.lhs_dilation[i] = 1;
      own.rhs_dilation[i] = spread;
      own.pad_low[i] = -(r + first * d - low) / s;
      own.pad_high[i] = each - n - own.pad_low[i] + spread * (part.dim(dim) - 1);
      y = host_convolution(c, x, part, own, result);
    }
    phases.push_back(c.b.unsqueeze(y, dim + 1));
  }
  out[i] = each * s;
  Value joined = c.b.reshape(c.b.concatenate(phases, dim + 1), with_channels(x.dim(0), w.dim(0), out));
  return c.b.slice_dim(joined, dim, 0, wanted);
}

Value group_by_group(Context& c, Value x, Value w, ConvWindow window, DType result) {
  const int64_t groups = window.feature_groups, in = x.dim(1) / groups, out = w.dim(0) / groups;
  window.feature_groups = 1;
  Values parts;
  for (int64_t k = 0; k < groups; ++k)
    parts.push_back(host_convolution(c, c.b.slice_dim(x, 1, k * in, (k + 1) * in),
                                     c.b.slice_dim(w, 0, k * out, (k + 1) * out), window, result));
  return c.b.concatenate(parts, 1);
}

// A 1 x 1 kernel: per sample, weights times the matrix of channels by positions.
Value pointwise(Context& c, Value x, Value w, const ConvWindow& window, DType result) {
  const Dims out = out_extents(x, w, window);
  Dims step{1, 1};
  step.insert(step.end(), window.strides.begin(), window.strides.end());
  if (!all_are(step, 1)) x = c.b.slice(x, Dims(step.size(), 0), x.shape(), step);
  const int64_t batch = x.dim(0), in = x.dim(1), channels = w.dim(0);
  Value weights = c.b.broadcast_in_dim(c.b.reshape(w, {channels, in}), {batch, channels, in}, {1, 2});
  Value y = c.b.dot(weights, c.b.reshape(x, {batch, in, product(out)}), {{0}, {0}, {2}, {1}}, result, c.precision);
  return c.b.reshape(y, with_channels(batch, channels, out));
}

bool is_pointwise(const Value& w, const ConvWindow& window) {
  return product(spatial_of(w)) == 1 && all_are(window.pad_low, 0) && all_are(window.pad_high, 0) &&
         all_are(window.lhs_dilation, 1);
}

// Blocks of channels, each as a dense gradient of which the diagonal is kept: a few times the work, in fast form.
Value depthwise_weight_gradient(Context& c, Value x, Value y, const Shape& weight, ConvGeometry g, DType result) {
  const int64_t channels = x.dim(1), each = weight[0] / channels;
  const int64_t block = std::max<int64_t>(8, (channels + kMostGroups - 1) / kMostGroups);
  g.groups = 1;
  Values parts;
  for (int64_t from = 0; from < channels; from += block) {
    const int64_t to = std::min(from + block, channels), n = to - from;
    Shape dense{n * each, n}, split{n, each, n};
    for (Shape* shape : {&dense, &split}) shape->insert(shape->end(), weight.begin() + 2, weight.end());
    Value all = host_weight_gradient(c, c.b.slice_dim(x, 1, from, to), c.b.slice_dim(y, 1, from * each, to * each),
                                     dense, g, result);
    all = c.b.reshape(all, split);
    const Type index{DType::kI32, split};
    Value own = c.b.select(c.b.eq(c.b.iota(index, 0), c.b.iota(index, 2)), all, c.b.zeros_like(all));
    parts.push_back(c.b.reduce_sum(own, {2}));
  }
  return c.b.reshape(c.b.concatenate(parts, 0), weight);
}

Value volumetric_weight_gradient(Context& c, Value x, Value y, const Shape& weight, ConvGeometry g, DType result) {
  const int64_t depth = y.dim(2), reached = (depth - 1) * g.stride[0] + g.dilation[0] * (weight[2] - 1) + 1;
  ConvWindow window = complete({}, 3);
  window.strides[0] = g.stride[0];
  window.rhs_dilation[0] = g.dilation[0];
  window.pad_low[0] = g.padding[0];
  window.pad_high[0] = reached - x.dim(2) - g.padding[0];
  Value stack = stacked_depth(c, x, window, weight[2], depth);
  Value flat = c.b.reshape(c.b.transpose(y, {0, 2, 1, 3, 4}), {y.dim(0) * depth, y.dim(1), y.dim(3), y.dim(4)});
  for (Dims* dims : {&g.stride, &g.padding, &g.dilation, &g.output_padding}) dims->erase(dims->begin());
  g.spatial = 2;
  const Shape planar{weight[0], weight[1] * weight[2], weight[3], weight[4]};
  return c.b.reshape(host_weight_gradient(c, stack, flat, planar, g, result), weight);
}

Value weight_gradient_by_group(Context& c, Value x, Value y, Shape weight, ConvGeometry g, DType result) {
  const int64_t groups = g.groups, in = weight[1], out = weight[0] / groups;
  g.groups = 1;
  weight[0] = out;
  Values parts;
  for (int64_t k = 0; k < groups; ++k)
    parts.push_back(host_weight_gradient(c, c.b.slice_dim(x, 1, k * in, (k + 1) * in),
                                         c.b.slice_dim(y, 1, k * out, (k + 1) * out), weight, g, result));
  return c.b.concatenate(parts, 0);
}

}  // namespace

Value host_convolution(Context& c, Value x, Value w, ConvWindow window, DType result) {
  // The narrow types have no fast form; the products of their values are exact in the wider one.
  x = c.b.convert(x, compute_dtype(x.dtype()));
  w = c.b.convert(w, compute_dtype(w.dtype()));
  window = complete(std::move(window), x.rank() - 2);
  const Shape shape = with_channels(x.dim(0), w.dim(0), out_extents(x, w, window));
  x = cropped(c, x, window);
  if (!x) return c.b.zeros({result, shape});
  const int64_t groups = window.feature_groups, phases = product(window.lhs_dilation);
  if (groups > 1 && w.dim(1) == 1 && product(spatial_of(w)) <= kMostTaps)
    return c.b.convert(depthwise(c, x, w, window), result);
  if (x.rank() == 5) return volumetric(c, x, w, window, result);
  if (phases > 1 && phases * groups <= kMostPhases && all_are(window.strides, 1)) {
    for (size_t i = 0; i < window.lhs_dilation.size(); ++i)
      if (window.lhs_dilation[i] > 1) return phased(c, x, w, window, i, result);
  }
  if (groups > 1 && groups <= kMostGroups) return group_by_group(c, x, w, window, result);
  if (groups == 1 && is_pointwise(w, window) && element_count(shape) / (shape[0] * shape[1]) >= kSmallestPlane)
    return pointwise(c, x, w, window, result);
  return c.b.convolution(x, w, channels_first(x.rank() - 2), window, result, c.precision);
}

Value host_weight_gradient(Context& c, Value x, Value y, const Shape& weight, const ConvGeometry& g, DType result) {
  x = c.b.convert(x, compute_dtype(x.dtype()));
  y = c.b.convert(y, compute_dtype(y.dtype()));
  if (g.groups > 1 && weight[1] == 1) return depthwise_weight_gradient(c, x, y, weight, g, result);
  if (g.spatial == 3) return volumetric_weight_gradient(c, x, y, weight, g, result);
  if (g.groups > 1 && g.groups <= kMostGroups) return weight_gradient_by_group(c, x, y, weight, g, result);
  return weight_gradient(c, x, y, weight, g, result);
}

}  // namespace torch_tpu::ops
