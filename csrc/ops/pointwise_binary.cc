// Binary functions: arithmetic, comparison, logic, bits.
#include <limits>
#include <numbers>

#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

const double kInf = std::numeric_limits<double>::infinity();

bool is_one(const Args& args, size_t i) { return args.none(i) || args.scalar_constant(i) == 1.0; }

// left + alpha * right (or minus), the operands picked by position; alpha 1 is a program of its own.
Rule scaled_sum(std::string op, size_t left, size_t right) {
  return [=](Context& c, const Args& args) -> Values {
    Expr x = operand(c, args, left), y = operand(c, args, right);
    if (!is_one(args, 2)) y = y * operand(c, args, 2);
    return result(c, call(op, x, y));
  };
}

Values div_mode(Context& c, const Args& args) {
  Expr x = operand(c, args, 0), y = operand(c, args, 1);
  const std::string mode = args.string_or(2, "");
  if (mode.empty()) return result(c, x / y);
  if (mode == "floor") return result(c, floor_divide(x, y));
  if (mode != "trunc") return {c.fail("rounding_mode must be None, 'trunc' or 'floor', got '" + mode + "'")};
  if (!is_float(x.dtype())) return result(c, x / y);
  // PyTorch rounds the quotient to the result's dtype first, which may carry it over an integer.
  return result(c, trunc((x / y).to(c.out().dtype)));
}

// Integer powers with a negative exponent are zero except for the bases 1 and -1.
Expr power(Expr x, Expr y) {
  if (!is_signed_integer(x.dtype())) return pow(x, y);
  Expr odd = (y & y.like(1)) == 1;
  Expr inverse = select(x == 1, 1.0, select(x == -1, select(odd, x, 1.0), x.like(0)));
  return select(y < 0, inverse, pow(x, max(y, 0)));
}

// Exponents that Python code writes all the time cost one multiplication or root instead of a logarithm.
std::optional<Expr> simple_power(Expr x, double exponent) {
  if (exponent == 0) return x.like(1);
  if (exponent == 1) return x;
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (is_integer(x.dtype()) || is_bool(x.dtype())) return std::nullopt;
  if (exponent == 0.5) return sqrt(x);
  if (exponent == -0.5) return is_complex(x.dtype()) ? 1.0 / sqrt(x) : rsqrt(x);
  if (exponent == -1) return 1.0 / x;
  if (exponent == -2) return 1.0 / (x * x);
  return std::nullopt;
}

Values pow_scalar_exponent(Context& c, const Args& args) {
  Expr x = operand(c, args, 0);
  if (std::optional<double> exponent = args.scalar_constant(1)) {
    if (std::optional<Expr> simple = simple_power(x, *exponent)) return result(c, *simple);
  }
  return result(c, power(x, operand(c, args, 1)));
}

Expr fmax(Expr x, Expr y) {
  return is_float(x.dtype()) ? select(is_nan(x), y, select(is_nan(y), x, max(x, y))) : max(x, y);
}
Expr fmin(Expr x, Expr y) {
  return is_float(x.dtype()) ? select(is_nan(x), y, select(is_nan(y), x, min(x, y))) : min(x, y);
}

// Scaled by the larger leg, so that no square overflows.
Expr hypot(Expr x, Expr y) {
  Expr large = max(abs(x), abs(y)), small = min(abs(x), abs(y));
  Expr ratio = select(large == 0, 0.0, small / large);
  Expr length = large * sqrt(1.0 + ratio * ratio);
  return select((abs(x) == kInf) | (abs(y) == kInf), kInf, length);
}

// log(base^x + base^y); equal infinities would give inf - inf.
Expr log_add(Expr x, Expr y, bool base2) {
  if (is_complex(x.dtype())) {
    // The operand with the larger real part leads, the other one is added relative to it.
    Expr swap = real(x) < real(y);
    Expr large = select(swap, y, x), small = select(swap, x, y);
    Expr sum = large + log(1.0 + exp(small - large));
    return select((x == y) & (abs(real(x)) == kInf), x, sum);
  }
  Expr large = max(x, y);
  Expr gap = -abs(x - y);
  Expr tail = base2 ? log1p(exp(gap * std::numbers::ln2)) / std::numbers::ln2 : log1p(exp(gap));
  return select((x == y) & (abs(x) == kInf), x, large + tail);
}

Expr xlogy(Expr x, Expr y) { return select(is_nan(y), y, select(x == 0, 0.0, x * log(y))); }
Expr xlog1py(Expr x, Expr y) { return select(is_nan(y), y, select(x == 0, 0.0, x * log1p(y))); }
Expr heaviside(Expr x, Expr y) { return select(x == 0, y, (x > 0).to(x.dtype())); }

// Euclid's algorithm on all elements at once, until the last remainder is zero.
Expr gcd(Expr x, Expr y) {
  const bool is_signed = is_signed_integer(x.dtype());
  Expr a = is_signed ? abs(x) : x, b = is_signed ? abs(y) : y;
  Values done = x.b().while_loop(
      {a, b},
      [](hlo::Builder& b, const Values& v) -> Values {
        Dims all;
        for (int64_t i = 0; i < v[1].rank(); ++i) all.push_back(i);
        Value nonzero = b.ne(v[1], b.zeros_like(v[1]));
        return {b.reduce(nonzero, b.scalar_int(DType::kBool, 0), all, "or")};
      },
      [](hlo::Builder& b, const Values& v) -> Values {
        Value stop = b.eq(v[1], b.zeros_like(v[1]));
        Value rest = b.rem(v[0], b.select(stop, b.ones_like(v[1]), v[1]));
        return {b.select(stop, v[0], v[1]), b.select(stop, v[1], rest)};
      });
  return x.with(done[0]);
}

Expr lcm(Expr x, Expr y) {
  Expr divisor = gcd(x, y);
  Expr product = select(divisor == 0, 0.0, x / select(divisor == 0, 1.0, divisor) * y);
  return is_signed_integer(x.dtype()) ? abs(product) : product;
}

// A shift by the width or more, or by a negative count, leaves zeros (left, unsigned right) or copies of the sign bit.
Expr shift(Expr x, Expr count, bool left) {
  if (is_float(x.dtype())) {
    Expr scale = pow(x.like(2), count);
    return left ? x * scale : x / scale;
  }
  const int64_t width = 8 * byte_size(x.dtype());
  Expr outside = (count < 0) | (count >= static_cast<double>(width));
  Expr bounded = select(outside, static_cast<double>(width - 1), count);
  if (left) return select(outside, 0.0, call("shift_left", x, bounded));
  if (is_signed_integer(x.dtype())) return call("shift_right_arithmetic", x, bounded);
  return select(outside, 0.0, call("shift_right_logical", x, bounded));
}

Expr shift_left(Expr x, Expr count) { return shift(x, count, true); }
Expr shift_right(Expr x, Expr count) { return shift(x, count, false); }

// The divisor of an integer zero has no value to return; PyTorch's error is raised where the values are known.
Values copysign_rule(Context& c, const Args& args) {
  Expr sign = operand(c, args, 1);
  return result(c, copy_sign(operand(c, args, 0), sign));
}

// Computed in the result's own dtype: a step in f32 would be no step in bf16.
Values nextafter_rule(Context& c, const Args& args) {
  DType dtype = c.out().dtype;
  return {next_after(operand(c, args, 0, dtype), operand(c, args, 1, dtype))};
}

void add_arithmetic_rows(Rows& rows) {
  rows.insert(rows.end(),
              {
                  Row{"aten::add.Tensor", scaled_sum("add", 0, 1)}.specialising(2, {1}),
                  Row{"aten::add.Scalar", scaled_sum("add", 0, 1)}.specialising(2, {1}),
                  Row{"aten::sub.Tensor", scaled_sum("subtract", 0, 1)}.specialising(2, {1}),
                  Row{"aten::sub.Scalar", scaled_sum("subtract", 0, 1)}.specialising(2, {1}),
                  Row{"aten::rsub.Tensor", scaled_sum("subtract", 1, 0)}.specialising(2, {1}),
                  Row{"aten::rsub.Scalar", scaled_sum("subtract", 1, 0)}.specialising(2, {1}),
                  {"aten::mul.Tensor", binary("multiply")},
                  {"aten::mul.Scalar", binary("multiply")},
                  {"aten::div.Tensor", binary("divide")},
                  {"aten::div.Scalar", binary("divide")},
                  {"aten::div.Tensor_mode", div_mode},
                  {"aten::div.Scalar_mode", div_mode},
                  {"aten::floor_divide", binary(floor_divide)},
                  {"aten::floor_divide.Scalar", binary(floor_divide)},
                  {"aten::remainder.Tensor", binary(remainder)},
                  {"aten::remainder.Scalar", binary(remainder)},
                  {"aten::remainder.Scalar_Tensor", binary(remainder)},
                  {"aten::fmod.Tensor", binary("remainder")},
                  {"aten::fmod.Scalar", binary("remainder")},
                  {"aten::pow.Tensor_Tensor", binary(power)},
                  {"aten::pow.Scalar", binary(power)},
                  Row{"aten::pow.Tensor_Scalar", pow_scalar_exponent}.specialising(1, {0, 0.5, 1, 2, 3, -0.5, -1, -2}),
                  {"aten::maximum", binary("maximum")},
                  {"aten::minimum", binary("minimum")},
                  {"aten::fmax", binary(fmax)},
                  {"aten::fmin", binary(fmin)},
                  {"aten::atan2", binary("atan2")},
                  {"aten::hypot", binary(hypot)},
                  {"aten::logaddexp", binary([](Expr x, Expr y) { return log_add(x, y, false); })},
                  {"aten::logaddexp2", binary([](Expr x, Expr y) { return log_add(x, y, true); })},
                  {"aten::copysign.Tensor", copysign_rule},
                  {"aten::copysign.Scalar", copysign_rule},
                  {"aten::nextafter", nextafter_rule},
                  {"aten::xlogy.Tensor", binary(xlogy)},
                  {"aten::xlogy.Scalar_Other", binary(xlogy)},
                  {"aten::xlogy.Scalar_Self", binary(xlogy)},
                  {"aten::special_xlog1py", binary(xlog1py)},
                  {"aten::special_xlog1py.other_scalar", binary(xlog1py)},
                  {"aten::special_xlog1py.self_scalar", binary(xlog1py)},
                  {"aten::heaviside", binary(heaviside)},
                  {"aten::gcd", binary(gcd)},
                  {"aten::lcm", binary(lcm)},
                  Row{"aten::_add_relu.Tensor",
                      [](Context& c, const Args& args) -> Values {
                        return result(c, max(operand(c, args, 0) + operand(c, args, 1) * operand(c, args, 2), 0));
                      }},
              });
}

void add_comparison_rows(Rows& rows) {
  using hlo::Compare;
  const std::pair<const char*, Compare> comparisons[] = {{"eq", Compare::kEQ}, {"ne", Compare::kNE},
                                                         {"lt", Compare::kLT}, {"le", Compare::kLE},
                                                         {"gt", Compare::kGT}, {"ge", Compare::kGE}};
  for (auto [name, direction] : comparisons) {
    rows.push_back({std::string("aten::") + name + ".Tensor", compare(direction)});
    rows.push_back({std::string("aten::") + name + ".Scalar", compare(direction)});
  }
}

void add_logic_rows(Rows& rows) {
  for (const char* name : {"and", "or", "xor"}) {
    rows.push_back({std::string("aten::logical_") + name, logical(name)});
    for (const char* overload : {".Tensor", ".Scalar", ".Scalar_Tensor"}) {
      rows.push_back({std::string("aten::bitwise_") + name + overload, binary(name)});
    }
  }
  for (const char* overload : {".Tensor", ".Tensor_Scalar", ".Scalar_Tensor"}) {
    rows.push_back({std::string("aten::bitwise_left_shift") + overload, binary(shift_left)});
    rows.push_back({std::string("aten::bitwise_right_shift") + overload, binary(shift_right)});
  }
  for (const char* overload : {".Tensor", ".Scalar"}) {
    for (const char* name : {"aten::__lshift__", "aten::__ilshift__"}) {
      rows.push_back({std::string(name) + overload, binary(shift_left)});
    }
    for (const char* name : {"aten::__rshift__", "aten::__irshift__"}) {
      rows.push_back({std::string(name) + overload, binary(shift_right)});
    }
  }
}

}  // namespace

void add_binary_rows(Rows& rows) {
  add_arithmetic_rows(rows);
  add_comparison_rows(rows);
  add_logic_rows(rows);
}

}  // namespace torch_tpu::ops
