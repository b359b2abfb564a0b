// Discrete Fourier transforms over any dims, one dim at a time (StableHLO: fft).
#include <cmath>

#include "ops/linalg.h"
#include "ops/promote.h"

namespace torch_tpu::ops {
namespace {

using hlo::Fft;

// Moves `dim` last, applies f, moves it back.
template <typename F>
Value along(Context& c, Value x, int64_t dim, F f) {
  Dims there;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != dim) there.push_back(i);
  there.push_back(dim);
  Dims back(there.size());
  for (size_t i = 0; i < there.size(); ++i) back[there[i]] = static_cast<int64_t>(i);
  return c.b.transpose(f(c.b.transpose(x, there)), back);
}

// PyTorch's fft_norm_mode: 0 none, 1 divide by sqrt(n), 2 divide by n.
double scale(int64_t mode, double n) { return mode == 1 ? 1 / std::sqrt(n) : mode == 2 ? 1 / n : 1; }

Value scaled(Context& c, Value x, double factor) {
  if (factor == 1) return x;
  return c.b.mul(x, is_complex(x.dtype()) ? c.b.constant_complex(x.type(), factor) : c.b.constant(x.type(), factor));
}

// Unnormalised complex transform of one dim; the engine's inverse divides by n.
Value transform(Context& c, Value x, int64_t dim, bool forward) {
  const int64_t n = x.dim(dim);
  if (n <= 1) return x;
  Value y = along(c, x, dim, [&](Value v) { return c.b.fft(v, forward ? Fft::kFFT : Fft::kIFFT, {n}); });
  return forward ? y : scaled(c, y, static_cast<double>(n));
}

double extent(Value x, const Dims& dims) {
  double n = 1;
  for (int64_t d : dims) n *= static_cast<double>(x.dim(d));
  return n;
}

// (self, dim, normalization, forward)
Values c2c(Context& c, const Args& args) {
  Value x = args.tensor(0);
  const Dims dims = wrap_dims(args.ints(1), x.rank());
  if (x.numel() == 0) return {c.b.zeros(c.out())};
  const double factor = scale(args.integer(2), extent(x, dims));
  for (int64_t d : dims) x = transform(c, x, d, args.flag(3));
  return {scaled(c, x, factor)};
}

// (self, dim, normalization, onesided)
Values r2c(Context& c, const Args& args) {
  Value x = args.tensor(0);
  Dims dims = wrap_dims(args.ints(1), x.rank());
  if (element_count(c.out().shape) == 0 || x.numel() == 0) return {c.b.zeros(c.out())};
  const double factor = scale(args.integer(2), extent(x, dims));
  const int64_t last = dims.back();
  const DType complex = c.out().dtype;
  if (args.flag(3) && x.dim(last) > 1) {
    const int64_t n = x.dim(last);
    x = along(c, x, last, [&](Value v) { return c.b.fft(v, Fft::kRFFT, {n}); });
    dims.pop_back();
  } else {
    x = c.b.convert(x, complex);
  }
  for (int64_t d : dims) x = transform(c, x, d, true);
  return {scaled(c, x, factor)};
}

// (self, dim, normalization, last_dim_size)
Values c2r(Context& c, const Args& args) {
  Value x = args.tensor(0);
  Dims dims = wrap_dims(args.ints(1), x.rank());
  if (element_count(c.out().shape) == 0 || x.numel() == 0) return {c.b.zeros(c.out())};
  const int64_t last = dims.back(), n = args.integer(3);
  dims.pop_back();
  const double factor = scale(args.integer(2), extent(x, dims) * static_cast<double>(n));
  for (int64_t d : dims) x = transform(c, x, d, false);
  const int64_t half = n / 2 + 1;
  if (x.dim(last) > half) x = c.b.slice_dim(x, last, 0, half);
  if (n == 1) return {scaled(c, c.b.real(x), factor)};
  Value y = along(c, x, last, [&](Value v) { return c.b.fft(v, Fft::kIRFFT, {n}); });
  return {scaled(c, y, factor * static_cast<double>(n))};
}

}  // namespace

void add_fft_rows(Rows& rows) {
  rows.push_back({"aten::_fft_c2c", c2c});
  rows.push_back({"aten::_fft_r2c", r2c});
  rows.push_back({"aten::_fft_c2r", c2r});
}

}  // namespace torch_tpu::ops
