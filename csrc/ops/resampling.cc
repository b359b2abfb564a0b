// Interpolation: every mode is a stencil per spatial dimension, its backward the transposed stencil. Positions and
// weights are computed here, in the precision in which PyTorch's CPU kernels compute them.
#include "ops/resampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "ops/promote.h"
#include "ops/stencil.h"

namespace torch_tpu::ops {
namespace {

enum class Mode { kNearest, kNearestExact, kLinear, kCubic, kLinearAntialias, kCubicAntialias, kLanczosAntialias };

// One dimension of an interpolation. `scale`: the user's factor, 0 when absent.
struct Axis {
  int64_t inputs, outputs;
  bool align_corners;
  double scale;
};

// Input step per output step.
template <typename T>
T step(const Axis& a) {
  if (a.align_corners) return a.outputs > 1 ? static_cast<T>(a.inputs - 1) / static_cast<T>(a.outputs - 1) : T(0);
  return a.scale > 0 ? static_cast<T>(1.0 / a.scale) : static_cast<T>(a.inputs) / static_cast<T>(a.outputs);
}

template <typename T>
T source(const Axis& a, T ratio, int64_t o) {
  if (a.align_corners) return ratio * static_cast<T>(o);
  return ratio * (static_cast<T>(o) + T(0.5)) - T(0.5);
}

Stencil nearest(const Axis& a, bool exact) {
  std::vector<int64_t> positions;
  // The index is computed in float for every dtype.
  float ratio = step<float>({a.inputs, a.outputs, false, a.scale});
  for (int64_t o = 0; o < a.outputs; ++o) {
    int64_t p;
    if (!exact && a.outputs == a.inputs) {
      p = o;
    } else if (!exact && a.outputs == 2 * a.inputs) {
      p = o / 2;
    } else if (exact) {
      p = static_cast<int64_t>(
          std::floor(static_cast<float>((static_cast<double>(o) + 0.5) * static_cast<double>(ratio))));
    } else {
      p = static_cast<int64_t>(std::floor(static_cast<float>(o) * ratio));
    }
    positions.push_back(std::clamp<int64_t>(p, 0, a.inputs - 1));
  }
  return Stencil::from_positions(a.inputs, positions);
}

template <typename T>
Stencil linear(const Axis& a) {
  Stencil stencil;
  stencil.inputs = a.inputs;
  T ratio = step<T>(a);
  for (int64_t o = 0; o < a.outputs; ++o) {
    if (a.inputs == a.outputs) {
      stencil.outputs.push_back({{o, 1.0}});
      continue;
    }
    T at = std::max(source<T>(a, ratio, o), T(0));
    int64_t low = std::min(static_cast<int64_t>(std::floor(at)), a.inputs - 1);
    int64_t high = std::min(low + 1, a.inputs - 1);
    T weight = std::clamp(at - static_cast<T>(low), T(0), T(1));
    stencil.outputs.push_back({{low, static_cast<double>(T(1) - weight)}, {high, static_cast<double>(weight)}});
  }
  return stencil;
}

// Keys' cubic convolution kernel with parameter `a`, for |x| <= 1 and for 1 < |x| < 2.
template <typename T>
T cubic_near(T x, T a) {
  return ((a + 2) * x - (a + 3)) * x * x + 1;
}
template <typename T>
T cubic_far(T x, T a) {
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

template <typename T>
Stencil cubic(const Axis& a) {
  Stencil stencil;
  stencil.inputs = a.inputs;
  T ratio = step<T>(a);
  constexpr T kA = T(-0.75);
  for (int64_t o = 0; o < a.outputs; ++o) {
    if (a.inputs == a.outputs) {
      stencil.outputs.push_back({{o, 1.0}});
      continue;
    }
    T at = source<T>(a, ratio, o);
    auto low = static_cast<int64_t>(std::floor(at));
    T t = std::clamp(at - static_cast<T>(low), T(0), T(1)), u = T(1) - t;
    const T weights[4] = {cubic_far(t + T(1), kA), cubic_near(t, kA), cubic_near(u, kA), cubic_far(u + T(1), kA)};
    stencil.outputs.emplace_back();
    for (int64_t k = 0; k < 4; ++k) {
      int64_t p = std::clamp<int64_t>(low - 1 + k, 0, a.inputs - 1);
      stencil.outputs.back().push_back({p, static_cast<double>(weights[k])});
    }
  }
  return stencil;
}

struct Filter {
  double radius;
  std::function<double(double)> value;
};

Filter antialias_filter(Mode mode) {
  if (mode == Mode::kLinearAntialias) return {1, [](double x) { return std::max(0.0, 1 - std::abs(x)); }};
  if (mode == Mode::kCubicAntialias) {
    return {2, [](double x) {
              x = std::abs(x);
              return x < 1 ? cubic_near(x, -0.5) : x < 2 ? cubic_far(x, -0.5) : 0.0;
            }};
  }
  auto sinc = [](double x) { return x == 0 ? 1.0 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x); };
  return {3, [sinc](double x) { return std::abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0.0; }};
}

// The filter is stretched over the inputs that one output covers when shrinking; weights are normalised to sum 1.
template <typename T>
Stencil antialias(const Axis& a, Mode mode) {
  Filter filter = antialias_filter(mode);
  Stencil stencil;
  stencil.inputs = a.inputs;
  T ratio = step<T>(a);
  T support = static_cast<T>(filter.radius) * std::max(ratio, T(1));
  T inverse = ratio >= T(1) ? T(1) / ratio : T(1);
  for (int64_t o = 0; o < a.outputs; ++o) {
    T center = ratio * (static_cast<T>(o) + T(0.5));
    int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + T(0.5)), 0);
    int64_t end = std::min<int64_t>(static_cast<int64_t>(center + support + T(0.5)), a.inputs);
    stencil.outputs.emplace_back();
    double total = 0;
    for (int64_t p = first; p < end; ++p) {
      double weight =
          filter.value((static_cast<double>(p) - static_cast<double>(center) + 0.5) * static_cast<double>(inverse));
      total += weight;
      stencil.outputs.back().push_back({p, weight});
    }
    for (Tap& tap : stencil.outputs.back()) tap.weight /= total != 0 ? total : 1;
  }
  return stencil;
}

template <typename T>
Stencil stencil_of(Mode mode, const Axis& a) {
  switch (mode) {
    case Mode::kNearest:
      return nearest(a, false);
    case Mode::kNearestExact:
      return nearest(a, true);
    case Mode::kLinear:
      return linear<T>(a);
    case Mode::kCubic:
      return cubic<T>(a);
    default:
      return antialias<T>(a, mode);
  }
}

struct Interpolation {
  Mode mode;
  int64_t dims;
  bool has_align_corners() const { return mode != Mode::kNearest && mode != Mode::kNearestExact; }
};

// Applies the mode along the last dims; `first_option` is where align_corners or the scales begin in the schema.
Value interpolate(Context& c, const Args& args, const Interpolation& m, Value x, const Shape& in, const Shape& out,
                  size_t first_option, bool backward) {
  bool align_corners = m.has_align_corners() && args.flag(first_option);
  size_t first_scale = first_option + (m.has_align_corners() ? 1 : 0);
  auto rank = static_cast<int64_t>(in.size());
  for (int64_t i = m.dims - 1; i >= 0; --i) {
    int64_t dim = rank - m.dims + i;
    Axis axis{in[dim], out[dim], align_corners, args.number_or(first_scale + i, 0)};
    Stencil stencil = x.dtype() == DType::kF64 ? stencil_of<double>(m.mode, axis) : stencil_of<float>(m.mode, axis);
    x = apply_stencil(c.b, x, dim, backward ? stencil.transposed() : stencil);
  }
  return x;
}

// Taps that a border folds onto one position become one tap.
Stencil merged(Stencil stencil) {
  for (std::vector<Tap>& taps : stencil.outputs) {
    std::vector<Tap> kept;
    for (const Tap& tap : taps) {
      if (!kept.empty() && kept.back().position == tap.position) {
        kept.back().weight += tap.weight;
      } else {
        kept.push_back(tap);
      }
    }
    taps = std::move(kept);
  }
  return stencil;
}

// Scales weights to whole numbers of as many bits as fit 16-bit products; returns the number of bits.
int quantize(Stencil& stencil) {
  double largest = 0;
  for (const std::vector<Tap>& taps : stencil.outputs) {
    for (const Tap& tap : taps) largest = std::max(largest, tap.weight);
  }
  int bits = 0;
  while (bits < 22 && static_cast<int64_t>(0.5 + largest * static_cast<double>(int64_t{1} << (bits + 1))) < (1 << 15))
    ++bits;
  auto scale = static_cast<double>(int64_t{1} << bits);
  for (std::vector<Tap>& taps : stencil.outputs) {
    for (Tap& tap : taps) tap.weight = std::trunc(tap.weight * scale + (tap.weight < 0 ? -0.5 : 0.5));
  }
  return bits;
}

// Images of u8: PyTorch works in fixed point, width before height, and rounds to u8 in between.
Value interpolate_levels(Context& c, const Args& args, const Interpolation& m, Value x) {
  Builder& b = c.b;
  Shape in = x.shape();
  for (int64_t i = m.dims - 1; i >= 0; --i) {
    int64_t dim = x.rank() - m.dims + i;
    Axis axis{in[dim], c.out().shape[dim], args.flag(2), args.number_or(3 + i, 0)};
    Stencil stencil = merged(stencil_of<double>(m.mode, axis));
    int bits = quantize(stencil);
    x = apply_stencil(b, b.convert(x, DType::kI32), dim, stencil);
    x = b.add(x, b.constant_int(x.type(), bits > 0 ? int64_t{1} << (bits - 1) : 0));
    x = b.shift_right_arithmetic(x, b.constant_int(x.type(), bits));
    x = b.clamp(b.scalar_int(DType::kI32, 0), x, b.scalar_int(DType::kI32, 255));
  }
  return b.convert(x, DType::kU8);
}

// upsample_*(self, output_size, [align_corners,] scales...)
Rule upsample(Interpolation m) {
  return [m](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    const Type& out = c.out();
    Value x = args.tensor(0);
    if (element_count(out.shape) == 0) return {b.zeros(out)};
    if (!m.has_align_corners()) return {interpolate(c, args, m, x, x.shape(), out.shape, 2, false)};
    if (!is_float(out.dtype)) return {interpolate_levels(c, args, m, x)};
    Value y = interpolate(c, args, m, b.convert(x, compute_dtype(out.dtype)), x.shape(), out.shape, 2, false);
    return {b.convert(y, out.dtype)};
  };
}

// upsample_*_backward(grad_output, output_size, input_size, [align_corners,] scales...)
Rule upsample_backward(Interpolation m) {
  return [m](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    const Type& out = c.out();
    Value grad = args.tensor(0);
    if (element_count(out.shape) == 0 || grad.numel() == 0) return {b.zeros(out)};
    Shape pooled = grad.shape();
    grad = b.convert(grad, compute_dtype(out.dtype));
    return {b.convert(interpolate(c, args, m, grad, out.shape, pooled, 3, true), out.dtype)};
  };
}

}  // namespace

void add_resampling_rows(Rows& rows) {
  const std::vector<std::pair<const char*, Interpolation>> names = {
      {"aten::upsample_nearest1d", {Mode::kNearest, 1}},
      {"aten::upsample_nearest2d", {Mode::kNearest, 2}},
      {"aten::upsample_nearest3d", {Mode::kNearest, 3}},
      {"aten::_upsample_nearest_exact1d", {Mode::kNearestExact, 1}},
      {"aten::_upsample_nearest_exact2d", {Mode::kNearestExact, 2}},
      {"aten::_upsample_nearest_exact3d", {Mode::kNearestExact, 3}},
      {"aten::upsample_linear1d", {Mode::kLinear, 1}},
      {"aten::upsample_bilinear2d", {Mode::kLinear, 2}},
      {"aten::upsample_trilinear3d", {Mode::kLinear, 3}},
      {"aten::upsample_bicubic2d", {Mode::kCubic, 2}},
      {"aten::_upsample_bilinear2d_aa", {Mode::kLinearAntialias, 2}},
      {"aten::_upsample_bicubic2d_aa", {Mode::kCubicAntialias, 2}},
      {"aten::_upsample_lanczos2d_aa", {Mode::kLanczosAntialias, 2}},
  };
  for (const auto& [name, mode] : names) {
    rows.push_back(Row{name, upsample(mode)});
    rows.push_back(Row{std::string(name) + "_backward", upsample_backward(mode)});
  }
  add_grid_sampler_rows(rows);
}

}  // namespace torch_tpu::ops
