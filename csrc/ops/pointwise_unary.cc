// Unary functions: rounding, exponentials, trigonometry, predicates.
#include <numbers>

#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

using std::numbers::ln10;
using std::numbers::ln2;
using std::numbers::pi;

// |z| of a complex operand is real, so the operand keeps its own dtype.
Values abs_rule(Context& c, const Args& args) {
  DType dtype = args.tensor(0).dtype();
  Expr x = operand(c, args, 0, compute_dtype(dtype));
  return result(c, is_unsigned_integer(dtype) || is_bool(dtype) ? x : abs(x));
}

Values angle_rule(Context& c, const Args& args) {
  DType dtype = args.tensor(0).dtype();
  if (is_complex(dtype)) {
    Expr z = operand(c, args, 0, dtype);
    return result(c, call("atan2", imag(z), real(z)));
  }
  Expr x = operand(c, args, 0);
  return result(c, select(is_nan(x), x, select(x < 0, x.like(pi), x.like(0))));
}

// Zero for NaN, as PyTorch's comparisons give.
Expr sign(Expr x) {
  if (is_complex(x.dtype())) return call("sign", x);
  if (is_bool(x.dtype())) return x;
  return (x > 0).to(x.dtype()) - (x < 0).to(x.dtype());
}

Expr exp2(Expr x) { return is_complex(x.dtype()) ? exp(x * ln2) : pow(x.like(2), x); }

// Exact for powers of two: the exponent is split off, and only the rest goes through the logarithm.
Expr log2(Expr x) {
  if (is_complex(x.dtype())) return log(x) / ln2;
  auto [mantissa, exponent] = split_exponent(x);
  Expr low = mantissa < std::numbers::sqrt2 / 2;
  Expr near_one = select(low, mantissa + mantissa, mantissa);
  Expr power = select(low, exponent - 1, exponent).to(x.dtype());
  Expr split = power + log(near_one) / ln2;
  Expr ordinary = (x > 0) & (x < std::numeric_limits<double>::infinity());
  return select(ordinary, split, log(x));
}

Values round_decimals(Context& c, const Args& args) {
  Expr x = operand(c, args, 0);
  if (!is_float(x.dtype())) return result(c, x);
  const int64_t decimals = args.integer(1);
  Expr scale = opaque_like(x, std::pow(10.0, static_cast<double>(std::abs(decimals))));
  Expr scaled = decimals >= 0 ? x * scale : x / scale;
  Expr rounded = call("round_nearest_even", scaled);
  return result(c, decimals >= 0 ? rounded / scale : rounded * scale);
}

Expr sinc(Expr x) {
  Expr scaled = x * pi;
  return select(x == 0, 1.0, sin(scaled) / scaled);
}

// chlo gives NaN at the poles; PyTorch gives -inf at +0 and +inf at -0, and NaN at negative integers.
Expr digamma(Expr x) {
  const double inf = std::numeric_limits<double>::infinity();
  return select(x == 0, copy_sign(x.like(inf), -x), call("chlo.digamma", x));
}

// chlo's series does not reach below zero; the reflection formula does: psi1(x) = pi^2 / sin^2(pi x) - psi1(1 - x).
Expr trigamma(Expr x) {
  Expr low = x < 0.5;
  Expr mirrored = select(low, 1.0 - x, x);
  Expr value = call("chlo.polygamma", x.like(1), mirrored);
  Expr sine = sin(x * pi);
  return select(low, pi * pi / (sine * sine) - value, value);
}

Values polygamma(Context& c, const Args& args) {
  Expr x = operand(c, args, 1);
  const int64_t n = args.integer(0);
  if (n == 0) return result(c, digamma(x));
  if (n == 1) return result(c, trigamma(x));
  Expr order = x.like(static_cast<double>(n));
  Expr value = exp(lgamma(order + 1)) * hurwitz_zeta(order + 1, x);
  return result(c, n % 2 == 1 ? value : -value);
}

// log of the multivariate gamma function: sum of lgamma(x - j / 2) over j < p, plus p (p - 1) / 4 log(pi).
Values mvlgamma(Context& c, const Args& args) {
  Expr x = operand(c, args, 0);
  const int64_t p = args.integer(1);
  Expr total = x.like(static_cast<double>(p * (p - 1)) / 4 * std::log(pi));
  for (int64_t j = 0; j < p; ++j) total = total + lgamma(x - static_cast<double>(j) / 2);
  return result(c, total);
}

Expr is_infinite(Expr x) {
  if (is_complex(x.dtype())) return is_infinite(real(x)) | is_infinite(imag(x));
  if (!is_float(x.dtype())) return x != x;
  return abs(x) == std::numeric_limits<double>::infinity();
}

Expr is_nan_any(Expr x) { return is_complex(x.dtype()) ? is_nan(real(x)) | is_nan(imag(x)) : is_nan(x); }

UnaryBody equals_infinity(double sign) {
  return [sign](Expr x) { return is_float(x.dtype()) ? x == sign * std::numeric_limits<double>::infinity() : x != x; };
}

Expr replace_special(Expr x, const Args& args) {
  if (is_complex(x.dtype())) {
    return x.with(x.b().complex(replace_special(real(x), args), replace_special(imag(x), args)));
  }
  if (!is_float(x.dtype())) return x;
  const double inf = std::numeric_limits<double>::infinity();
  Expr high = args.none(2) ? x.with(x.b().max_finite(x.value().type())) : x.like(args.number(2));
  Expr low = args.none(3) ? x.with(x.b().lowest_finite(x.value().type())) : x.like(args.number(3));
  Expr bounded = select(x == inf, high, select(x == -inf, low, x));
  return select(is_nan(x), x.like(args.number_or(1, 0)), bounded);
}

// The finite limits are those of the tensor's dtype, not of the dtype it would compute in.
Values nan_to_num(Context& c, const Args& args) {
  return result(c, replace_special(operand(c, args, 0, args.tensor(0).dtype()), args));
}

// Written argument last (the only one in place).
Values conjugate_into(Context& c, const Args& args) {
  const Value written = args.tensor(args.size() - 1);
  return {conj({c.b, as(c, args, 0, written.dtype(), written.shape())})};
}

Values frexp(Context& c, const Args& args) {
  auto [mantissa, exponent] = split_exponent(operand(c, args, 0, args.tensor(0).dtype()));
  return {mantissa, c.b.convert(exponent, c.out(1).dtype)};
}

}  // namespace

void add_unary_rows(Rows& rows) {
  rows.insert(rows.end(), {
                              {"aten::abs", abs_rule},
                              {"aten::angle", angle_rule},
                              {"aten::acos", unary("chlo.acos")},
                              {"aten::acosh", unary("chlo.acosh")},
                              {"aten::asin", unary("chlo.asin")},
                              {"aten::asinh", unary("chlo.asinh")},
                              {"aten::atan", unary("chlo.atan")},
                              {"aten::atanh", unary("chlo.atanh")},
                              {"aten::bitwise_not", unary("not")},
                              {"aten::ceil", rounding(ceil)},
                              // conj_physical itself is a composite of these.
                              {"aten::_conj_physical", unary(conj)},
                              {"aten::conj_physical_", conjugate_into},
                              {"aten::conj_physical.out", conjugate_into},  // writes its out= argument
                              {"aten::cos", unary("cosine")},
                              {"aten::cosh", unary("chlo.cosh")},
                              {"aten::digamma", unary(digamma)},
                              {"aten::erf", unary("chlo.erf")},
                              {"aten::erfc", unary("chlo.erfc")},
                              {"aten::erfinv", unary("chlo.erf_inv")},
                              {"aten::exp", unary("exponential")},
                              {"aten::exp2", unary(exp2)},
                              {"aten::expm1", unary("exponential_minus_one")},
                              {"aten::floor", rounding(floor)},
                              {"aten::frac", unary([](Expr x) { return x - trunc(x); })},
                              {"aten::frexp.Tensor", frexp},
                              {"aten::isinf", unary_exact(is_infinite)},
                              {"aten::isnan", unary_exact(is_nan_any)},
                              {"aten::isneginf", unary_exact(equals_infinity(-1))},
                              {"aten::isposinf", unary_exact(equals_infinity(1))},
                              {"aten::lgamma", unary("chlo.lgamma")},
                              {"aten::log", unary("log")},
                              {"aten::log10", unary([](Expr x) { return log(x) / ln10; })},
                              {"aten::log1p", unary("log_plus_one")},
                              {"aten::log2", unary(log2)},
                              {"aten::logical_not", unary_exact([](Expr x) { return x == 0; })},
                              {"aten::mvlgamma", mvlgamma},
                              {"aten::nan_to_num", nan_to_num},
                              {"aten::neg", unary("negate")},
                              {"aten::polygamma", polygamma},
                              {"aten::reciprocal", unary([](Expr x) { return 1.0 / x; })},
                              {"aten::round", rounding([](Expr x) { return call("round_nearest_even", x); })},
                              {"aten::round.decimals", round_decimals},
                              {"aten::rsqrt", unary("rsqrt")},
                              {"aten::sgn", unary(sign)},
                              {"aten::sigmoid", unary(sigmoid)},
                              {"aten::sign", unary(sign)},
                              {"aten::signbit", unary_exact(sign_bit)},
                              {"aten::sin", unary("sine")},
                              {"aten::sinc", unary(sinc)},
                              {"aten::sinh", unary("chlo.sinh")},
                              {"aten::sqrt", unary("sqrt")},
                              {"aten::tan", unary("chlo.tan")},
                              {"aten::tanh", unary("tanh")},
                              {"aten::trunc", rounding(trunc)},
                          });
}

}  // namespace torch_tpu::ops
