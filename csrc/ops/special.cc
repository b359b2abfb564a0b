// Special functions from Chebyshev series (special_coefficients.h), and the incomplete gamma functions.
#include <algorithm>
#include <limits>
#include <numbers>

#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/special_coefficients.h"

namespace torch_tpu::ops {
namespace {

using std::numbers::inv_sqrtpi;
using std::numbers::pi;
using std::numbers::sqrt2;
const double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

// Clenshaw's sum of c[k] T_k(t). Terms below the dtype's rounding are left out.
Expr chebyshev_sum(Expr t, const std::vector<double>& c) {
  double largest = 0;
  for (double v : c) largest = std::max(largest, std::abs(v));
  size_t n = c.size();
  const double negligible = t.dtype() == DType::kF64 ? 0 : largest * 1e-9;
  while (n > 1 && std::abs(c[n - 1]) < negligible) --n;
  Expr next = t.like(0), after = t.like(0);
  for (size_t k = n - 1; k > 0; --k) {
    Expr current = 2.0 * t * next - after + c[k];
    after = next;
    next = current;
  }
  return t * next - after + c[0];
}

// exp(-|x|) I_n(x) for n = 0 and 1.
Expr scaled_i(Expr x, int order) {
  Expr size = abs(x);
  Expr far = max(size, 8);
  if (order == 0) {
    return select(size <= 8, chebyshev_sum(min(size, 8) / 4 - 1, chebyshev::kI0Small),
                  chebyshev_sum(16.0 / far - 1, chebyshev::kI0Large) / sqrt(far));
  }
  Expr value = select(size <= 8, size * chebyshev_sum(min(size, 8) / 4 - 1, chebyshev::kI1Small),
                      chebyshev_sum(16.0 / far - 1, chebyshev::kI1Large) / sqrt(far));
  return copy_sign(value, x);
}

Expr bessel_i(Expr x, int order) {
  Expr value = scaled_i(x, order) * exp(abs(x));
  return select(abs(x) == kInf, order == 0 ? abs(x) : x, value);
}

// K_n, or exp(x) K_n where `scaled`; +inf at zero, NaN below.
Expr bessel_k(Expr x, int order, bool scaled) {
  Expr near = max(min(x, 2), 1e-30), far = max(x, 2);
  Expr t = near * near / 2 - 1;
  Expr log_half = log(near / 2);
  Expr small = order == 0 ? chebyshev_sum(t, chebyshev::kK0Small) - log_half * bessel_i(near, 0)
                          : chebyshev_sum(t, chebyshev::kK1Small) / near + log_half * bessel_i(near, 1);
  if (scaled) small = small * exp(near);
  Expr large = chebyshev_sum(4.0 / far - 1, order == 0 ? chebyshev::kK0Large : chebyshev::kK1Large) / sqrt(far);
  if (!scaled) large = large * exp(-far);
  Expr value = select(x <= 2, small, large);
  return select(is_nan(x), x, select(x == 0, kInf, select(x < 0, kNan, value)));
}

// P cos(x - shift) - s Q sin(x - shift), the form of J (sine false) and Y (sine true) for x >= 8.
Expr phase_form(Expr x, int order, bool second_kind) {
  Expr ratio = 8.0 / x;
  Expr t = 2.0 * ratio * ratio - 1;
  Expr p = chebyshev_sum(t, order == 0 ? chebyshev::kBesselP0 : chebyshev::kBesselP1);
  Expr q = chebyshev_sum(t, order == 0 ? chebyshev::kBesselQ0 : chebyshev::kBesselQ1) * ratio;
  Expr angle = x - (pi / 4 + order * pi / 2);
  Expr wave = second_kind ? p * sin(angle) + q * cos(angle) : p * cos(angle) - q * sin(angle);
  return wave * sqrt((2 / pi) / x);
}

Expr bessel_j(Expr x, int order) {
  Expr size = abs(x);
  Expr near = min(size, 8), far = max(size, 8);
  Expr t = near * near / 32 - 1;
  Expr small = order == 0 ? chebyshev_sum(t, chebyshev::kJ0Small) : near * chebyshev_sum(t, chebyshev::kJ1Small);
  Expr value = select(size <= 8, small, phase_form(far, order, false));
  value = select(size == kInf, 0.0, value);
  return order == 0 ? value : select(x < 0, -value, value);
}

Expr bessel_y(Expr x, int order) {
  Expr near = max(min(x, 8), 1e-30), far = max(x, 8);
  Expr t = near * near / 32 - 1;
  Expr small = order == 0 ? chebyshev_sum(t, chebyshev::kY0Small) + (2 / pi) * log(near) * bessel_j(near, 0)
                          : near * chebyshev_sum(t, chebyshev::kY1Small) +
                                (2 / pi) * (log(near) * bessel_j(near, 1) - 1.0 / near);
  Expr value = select(x <= 8, small, phase_form(far, order, true));
  value = select(x == kInf, 0.0, value);
  return select(is_nan(x), x, select(x == 0, -kInf, select(x < 0, kNan, value)));
}

Expr airy_ai(Expr x) {
  const double zeta_at_2 = 2.0 / 3 * std::pow(2.0, 1.5), zeta_at_8 = 2.0 / 3 * std::pow(8.0, 1.5);
  Expr middle = chebyshev_sum((min(max(x, -8), 2) + 3) / 5, chebyshev::kAirySmall);

  Expr right = max(x, 2);
  Expr root = sqrt(right);
  Expr zeta = right * root * (2.0 / 3);
  Expr decaying =
      chebyshev_sum(2 * zeta_at_2 / zeta - 1, chebyshev::kAiryTail) * exp(-zeta) / (2 / inv_sqrtpi * sqrt(root));

  Expr left = max(-x, 8);
  root = sqrt(left);
  zeta = left * root * (2.0 / 3);
  Expr ratio = zeta_at_8 / zeta;
  Expr t = 2.0 * ratio * ratio - 1;
  Expr angle = zeta - pi / 4;
  Expr wave =
      chebyshev_sum(t, chebyshev::kAiryP) * cos(angle) + chebyshev_sum(t, chebyshev::kAiryQ) / zeta * sin(angle);
  Expr waving = wave * inv_sqrtpi / sqrt(root);
  Expr value = select(x < -8, waving, select(x > 2, decaying, middle));
  return select(abs(x) == kInf, select(x > 0, x.like(0), x.like(kNan)), value);
}

// exp(x^2) erfc(x).
Expr erfcx(Expr x) {
  Expr size = abs(x);
  Expr far = min(size, 1e30);
  Expr right = chebyshev_sum(8.0 / (4.0 + far) - 1, chebyshev::kErfcx) / (1.0 + 2.0 * far);
  Expr left = 2.0 * exp(x * x) - right;
  return select(is_nan(x), x, select(size == kInf, select(x > 0, x.like(0), x.like(kInf)), select(x < 0, left, right)));
}

Expr log_ndtr(Expr x) {
  Expr low = log(erfcx(-x / sqrt2) / 2) - x * x / 2;
  Expr high = log1p(call("chlo.erfc", x / sqrt2) / -2.0);
  return select(x < -1, low, high);
}

// Quantile of the standard normal distribution.
Expr ndtri(Expr p) {
  Expr tail = select(p > 0.5, 1.0 - p, p);
  Expr w = sqrt(-2.0 * log(max(tail, p.dtype() == DType::kF64 ? 1e-307 : 1e-37)));
  Expr z = 1.0 / w;
  Expr far = w - log(w) / w - z * chebyshev_sum((min(max(z, 0.02), 0.5) - 0.26) / 0.24, chebyshev::kNormalTail);
  Expr near = sqrt2 * call("chlo.erf_inv", 2.0 * p - 1);
  Expr value = select(tail > 0.135, near, select(p > 0.5, far, -far));
  value = select(p == 0, -kInf, select(p == 1, kInf, value));
  return select((p < 0) | (p > 1), kNan, value);
}

Expr entropy(Expr x) {
  Expr positive = x > 0;
  Expr value = -x * log(select(positive, x, 1.0));
  return select(is_nan(x), x, select(positive, value, select(x == 0, x.like(0), x.like(-kInf))));
}

Expr spherical_j0(Expr x) {
  Expr square = x * x;
  Expr near = 1.0 + square * (-1.0 / 6 + square * (1.0 / 120 - square / 5040));
  Expr value = select(abs(x) < 0.5, near + square * square * square * square / 362880.0, sin(x) / x);
  return select(abs(x) == kInf, 0.0, value);
}

Expr machine_epsilon(Expr x) { return x.like(x.dtype() == DType::kF64 ? 0x1p-53 : 0x1p-24); }

Value any_true(hlo::Builder& b, Value x) {
  Dims all;
  for (int64_t i = 0; i < x.rank(); ++i) all.push_back(i);
  return any({b, x}, all);
}

constexpr int64_t kMaxTerms = 2000;

Values continue_while(hlo::Builder& b, const Values& v) {
  return {b.logical_and(b.lt(v[0], b.scalar_int(DType::kI32, kMaxTerms)), any_true(b, v[1]))};
}

// x^a exp(-x) / gamma(a), the factor that both expansions share.
Expr gamma_factor(Expr a, Expr x) { return exp(a * log(x) - x - lgamma(a)); }

// P(a, x) = factor / a * sum x^n / ((a + 1) ... (a + n)): converges fast for x < a + 1.
Expr lower_series(Expr a, Expr x, Expr active) {
  hlo::Builder& b = a.b();
  Values end =
      b.while_loop({b.scalar_int(DType::kI32, 0), active, a, a.like(1), a.like(1)}, continue_while,
                   [&](hlo::Builder& b, const Values& v) -> Values {
                     Expr n{b, v[0]}, open{b, v[1]}, r{b, v[2]}, term{b, v[3]}, total{b, v[4]};
                     r = r + 1;
                     term = term * x / r;
                     Expr next = total + term;
                     return {n + 1, open & (term > machine_epsilon(x) * next), r, term, select(open, next, total)};
                   });
  return a.with(end[4]) / a * gamma_factor(a, x);
}

// Q(a, x) by the continued fraction of Legendre, evaluated with the modified Lentz method: for x >= a + 1.
Expr upper_fraction(Expr a, Expr x, Expr active) {
  hlo::Builder& b = a.b();
  const double tiny = 1e-30;
  Expr start = x + 1 - a;
  Expr d = 1.0 / select(start == 0, tiny, start);
  Values end = b.while_loop({b.scalar_int(DType::kI32, 0), active, start, a.like(1 / tiny), d, d}, continue_while,
                            [&](hlo::Builder& b, const Values& v) -> Values {
                              Expr n{b, v[0]}, open{b, v[1]}, base{b, v[2]}, c{b, v[3]}, d{b, v[4]}, h{b, v[5]};
                              Expr i{b, b.broadcast(b.convert(n + 1, x.dtype()), x.value().shape())};
                              Expr numerator = -i * (i - a);
                              Expr next_base = base + 2;
                              Expr denominator = numerator * d + next_base;
                              Expr next_d = 1.0 / select(denominator == 0, tiny, denominator);
                              Expr next_c = next_base + numerator / c;
                              next_c = select(next_c == 0, tiny, next_c);
                              Expr delta = next_d * next_c;
                              Expr next_h = h * delta;
                              return {n + 1,     open & (abs(delta - 1) > machine_epsilon(x) * 2),
                                      next_base, next_c,
                                      next_d,    select(open, next_h, h)};
                            });
  return a.with(end[5]) * gamma_factor(a, x);
}

Expr incomplete_gamma(Expr a, Expr x, bool upper) {
  Expr ordinary = (a > 0) & (x > 0) & (a < kInf) & (x < kInf);
  Expr by_series = ordinary & (x < a + 1), by_fraction = ordinary & (x >= a + 1);
  Expr lower = lower_series(select(by_series, a, 1.0), select(by_series, x, 1.0), by_series);
  Expr higher = upper_fraction(select(by_fraction, a, 1.0), select(by_fraction, x, 3.0), by_fraction);
  Expr value = upper ? select(by_series, 1.0 - lower, higher) : select(by_series, lower, 1.0 - higher);
  const double at_zero = upper ? 1 : 0;
  Expr infinite_shape = select(x == kInf, x.like(kNan), x.like(at_zero));
  Expr edge = select(x == 0, x.like(at_zero), select(a == kInf, infinite_shape, x.like(1 - at_zero)));
  edge = select(a == 0, select(x > 0, x.like(1 - at_zero), x.like(kNan)), edge);
  value = select(ordinary, value, edge);
  return select(is_nan(a) | is_nan(x) | (a < 0) | (x < 0), kNan, value);
}

}  // namespace

Expr hurwitz_zeta(Expr s, Expr q) {
  hlo::Builder& b = s.b();
  constexpr double kMaxShift = 10000;
  Values shifted = b.while_loop(
      {b.scalar(q.dtype(), 0), q, s.like(0)},
      [](hlo::Builder& b, const Values& v) -> Values {
        return {
            b.logical_and(b.lt(v[0], b.scalar(v[0].dtype(), kMaxShift)), any_true(b, b.lt(v[1], b.zeros_like(v[1]))))};
      },
      [&](hlo::Builder& b, const Values& v) -> Values {
        Expr n{b, v[0]}, q{b, v[1]}, total{b, v[2]};
        Expr negative = q < 0;
        return {n + 1, select(negative, q + 1, q), select(negative, total + pow(q, -s), total)};
      });
  Expr value = call("chlo.zeta", s, q.with(shifted[1])) + q.with(shifted[2]);
  value = select((q <= 0) & (floor(q) == q), kInf, value);
  value = select((q <= 0) & (floor(q) != q) & (floor(s) != s), kNan, value);
  return select(s == 1, kInf, select(s < 1, kNan, value));
}

void add_special_rows(Rows& rows) {
  const size_t first = rows.size();
  rows.insert(rows.end(),
              {
                  {"aten::i0", unary([](Expr x) { return bessel_i(x, 0); })},
                  {"aten::special_i0e", unary([](Expr x) { return scaled_i(x, 0); })},
                  {"aten::special_i1", unary([](Expr x) { return bessel_i(x, 1); })},
                  {"aten::special_i1e", unary([](Expr x) { return scaled_i(x, 1); })},
                  {"aten::special_modified_bessel_i0", unary([](Expr x) { return bessel_i(x, 0); })},
                  {"aten::special_modified_bessel_i1", unary([](Expr x) { return bessel_i(x, 1); })},
                  {"aten::special_modified_bessel_k0", unary([](Expr x) { return bessel_k(x, 0, false); })},
                  {"aten::special_modified_bessel_k1", unary([](Expr x) { return bessel_k(x, 1, false); })},
                  {"aten::special_scaled_modified_bessel_k0", unary([](Expr x) { return bessel_k(x, 0, true); })},
                  {"aten::special_scaled_modified_bessel_k1", unary([](Expr x) { return bessel_k(x, 1, true); })},
                  {"aten::special_bessel_j0", unary([](Expr x) { return bessel_j(x, 0); })},
                  {"aten::special_bessel_j1", unary([](Expr x) { return bessel_j(x, 1); })},
                  {"aten::special_bessel_y0", unary([](Expr x) { return bessel_y(x, 0); })},
                  {"aten::special_bessel_y1", unary([](Expr x) { return bessel_y(x, 1); })},
                  {"aten::special_spherical_bessel_j0", unary(spherical_j0)},
                  {"aten::special_airy_ai", unary(airy_ai)},
                  {"aten::special_erfcx", unary(erfcx)},
                  {"aten::special_log_ndtr", unary(log_ndtr)},
                  {"aten::special_ndtri", unary(ndtri)},
                  {"aten::special_entr", unary(entropy)},
                  {"aten::special_zeta", binary(hurwitz_zeta)},
                  {"aten::special_zeta.other_scalar", binary(hurwitz_zeta)},
                  {"aten::special_zeta.self_scalar", binary(hurwitz_zeta)},
                  {"aten::igamma", binary([](Expr a, Expr x) { return incomplete_gamma(a, x, false); })},
                  {"aten::igammac", binary([](Expr a, Expr x) { return incomplete_gamma(a, x, true); })},
              });
  for (size_t i = first; i < rows.size(); ++i) rows[i].as_pointwise();
}

}  // namespace torch_tpu::ops
