#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

// The unsigned integer of a float dtype's width.
DType bits_of(DType dtype) {
  switch (byte_size(dtype)) {
    case 1:
      return DType::kU8;
    case 2:
      return DType::kU16;
    case 4:
      return DType::kU32;
    default:
      return DType::kU64;
  }
}

Expr as_bits(Expr x) { return x.with(x.b().bitcast(x, {bits_of(x.dtype()), x.value().shape()})); }
Expr from_bits(Expr bits, DType dtype) { return bits.with(bits.b().bitcast(bits, {dtype, bits.value().shape()})); }

Expr integer_like(Expr x, uint64_t v) { return x.with(x.b().constant_uint(x.value().type(), v)); }
uint64_t sign_mask(DType bits) { return uint64_t{1} << (8 * byte_size(bits) - 1); }

struct FloatLayout {
  int mantissa_bits;
  int64_t bias;
  uint64_t exponent_mask;  // right-aligned
};

FloatLayout layout_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {52, 1023, 0x7FF};
    case DType::kF16:
      return {10, 15, 0x1F};
    case DType::kBF16:
      return {7, 127, 0xFF};
    default:
      return {23, 127, 0xFF};
  }
}

}  // namespace

Expr operand(Context& c, const Args& args, size_t i, DType dtype) {
  return {c.b, as(c, args, i, dtype, c.out().shape)};
}

Expr operand(Context& c, const Args& args, size_t i) { return operand(c, args, i, compute_dtype(c.out().dtype)); }

Values result(Context& c, Expr x) { return {c.b.convert(x, c.out().dtype)}; }

Rule elementwise(std::vector<size_t> which, Body body) {
  return [which = std::move(which), body = std::move(body)](Context& c, const Args& args) -> Values {
    Exprs xs;
    for (size_t i : which) xs.push_back(operand(c, args, i));
    return result(c, body(c, xs));
  };
}

Rule unary(UnaryBody body) {
  return
      [body = std::move(body)](Context& c, const Args& args) -> Values { return result(c, body(operand(c, args, 0))); };
}

Rule unary(std::string op) {
  return unary([op = std::move(op)](Expr x) { return call(op, x); });
}

Rule unary_exact(UnaryBody body) {
  return [body = std::move(body)](Context& c, const Args& args) -> Values {
    return result(c, body(operand(c, args, 0, args.tensor(0).dtype())));
  };
}

Rule rounding(UnaryBody body) {
  return unary([body = std::move(body)](Expr x) { return is_float(x.dtype()) ? body(x) : x; });
}

Rule binary(BinaryBody body) {
  return [body = std::move(body)](Context& c, const Args& args) -> Values {
    return result(c, body(operand(c, args, 0), operand(c, args, 1)));
  };
}

Rule binary(std::string op) {
  return binary([op = std::move(op)](Expr x, Expr y) { return call(op, x, y); });
}

Rule ternary(TernaryBody body) {
  return [body = std::move(body)](Context& c, const Args& args) -> Values {
    return result(c, body(operand(c, args, 0), operand(c, args, 1), operand(c, args, 2)));
  };
}

Rule compare(hlo::Compare direction) {
  return [direction](Context& c, const Args& args) -> Values {
    DType common = result_type(args, {0, 1});
    Value bits = c.b.compare(operand(c, args, 0, common), operand(c, args, 1, common), direction);
    return {c.b.convert(bits, c.out().dtype)};
  };
}

Rule logical(std::string op) {
  return [op = std::move(op)](Context& c, const Args& args) -> Values {
    return result(c, call(op, operand(c, args, 0, DType::kBool), operand(c, args, 1, DType::kBool)));
  };
}

Expr sign_bit(Expr x) {
  if (!is_float(x.dtype())) return x < 0;
  Expr bits = as_bits(x);
  return (bits & integer_like(bits, sign_mask(bits.dtype()))) != integer_like(bits, 0);
}

Expr copy_sign(Expr magnitude, Expr sign) {
  Expr bits = as_bits(magnitude);
  Expr mask = integer_like(bits, sign_mask(bits.dtype()));
  return from_bits((bits & ~mask) | (as_bits(sign) & mask), magnitude.dtype());
}

Expr next_after(Expr x, Expr y) {
  Expr bits = as_bits(x);
  Expr one = integer_like(bits, 1);
  Expr mask = integer_like(bits, sign_mask(bits.dtype()));
  // Away from zero the magnitude's bits grow by one; towards zero they shrink by one.
  Expr away = (x < y) ^ sign_bit(x);
  Expr moved = from_bits(select(away, bits + one, bits - one), x.dtype());
  Expr smallest = from_bits((as_bits(y) & mask) | one, x.dtype());
  Expr stepped = select(x == 0, smallest, moved);
  return select(is_nan(x) | is_nan(y), x + y, select(x == y, y, stepped));
}

Expr sigmoid(Expr x) { return is_complex(x.dtype()) ? 1.0 / (1.0 + exp(-x)) : logistic(x); }

Expr polynomial(Expr x, const std::vector<double>& coefficients) {
  Expr sum = x.like(coefficients.front());
  for (size_t i = 1; i < coefficients.size(); ++i) sum = sum * x + coefficients[i];
  return sum;
}

Expr remainder(Expr x, Expr y) {
  Expr mod = x % y;
  if (is_unsigned_integer(x.dtype()) || is_bool(x.dtype())) return mod;
  return select((mod != 0) & ((y < 0) ^ (mod < 0)), mod + y, mod);
}

Expr floor_divide(Expr x, Expr y) {
  if (is_unsigned_integer(x.dtype()) || is_bool(x.dtype())) return x / y;
  Expr mod = x % y;
  Expr differs = (mod != 0) & ((y < 0) ^ (mod < 0));
  if (is_integer(x.dtype())) {
    Expr quotient = x / y;
    return select(differs, quotient - 1, quotient);
  }
  // Dividing after the remainder is taken off keeps the quotient near an integer; the half step repairs rounding.
  Expr quotient = (x - mod) / y;
  quotient = select(differs, quotient - 1, quotient);
  Expr whole = floor(quotient);
  whole = select(quotient - whole > 0.5, whole + 1, whole);
  Expr signed_zero = copy_sign(quotient.like(0), x / y);
  return select(y == 0, x / y, select(quotient != 0, whole, signed_zero));
}

std::pair<Expr, Expr> split_exponent(Expr x) {
  const FloatLayout layout = layout_of(x.dtype());
  // A subnormal has no exponent bits of its own: it is scaled into the normal range first. The scaling is done on the
  // integer value of the mantissa because engines may flush subnormal operands of a multiplication to zero.
  Expr bits = as_bits(x);
  Expr shift = integer_like(bits, layout.mantissa_bits);
  Expr exponent_mask = integer_like(bits, layout.exponent_mask << layout.mantissa_bits);
  Expr mantissa_mask = integer_like(bits, (uint64_t{1} << layout.mantissa_bits) - 1);
  Expr biased = call("shift_right_logical", bits & exponent_mask, shift);
  Expr fraction = bits & mantissa_mask;
  Expr zero = integer_like(bits, 0);
  Expr subnormal = (biased == zero) & (fraction != zero);

  Expr scaled = copy_sign(fraction.to(x.dtype()), x);  // exact: the mantissa has fewer bits than the dtype holds
  Expr scaled_bits = as_bits(scaled);
  Expr scaled_biased = call("shift_right_logical", scaled_bits & exponent_mask, shift);
  Expr wanted = integer_like(bits, static_cast<uint64_t>(layout.bias - 1) << layout.mantissa_bits);
  Expr source = select(subnormal, scaled_bits, bits);
  Expr mantissa = from_bits((source & ~exponent_mask) | wanted, x.dtype());

  Expr normal_exponent = biased.to(DType::kI32) - static_cast<double>(layout.bias - 1);
  Expr subnormal_exponent =
      scaled_biased.to(DType::kI32) - static_cast<double>(layout.bias - 1 + layout.bias - 1 + layout.mantissa_bits);
  Expr exponent = select(subnormal, subnormal_exponent, normal_exponent);
  Expr special = (biased == integer_like(bits, layout.exponent_mask)) | ((biased == zero) & (fraction == zero));
  return {select(special, x, mantissa), select(special, 0.0, exponent)};
}

void add_pointwise_rows(Rows& rows) {
  const size_t first = rows.size();
  add_unary_rows(rows);
  add_binary_rows(rows);
  add_ternary_rows(rows);
  add_activation_rows(rows);
  for (size_t i = first; i < rows.size(); ++i) rows[i].as_pointwise();
  add_gated_rows(rows);
  add_special_rows(rows);
  add_polynomial_rows(rows);
}

}  // namespace torch_tpu::ops
