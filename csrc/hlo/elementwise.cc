// Elementwise operations of the Builder, with PyTorch's meaning of conversions.
#include <cmath>
#include <limits>
#include <unordered_map>

#include "hlo/attributes.h"
#include "hlo/builder.h"

namespace torch_tpu::hlo {
namespace {

// Which element kinds an operation takes (spec: the constraints of each op).
enum Kinds : unsigned { kBool = 1, kUnsigned = 2, kSigned = 4, kFloat = 8, kComplex = 16 };
constexpr unsigned kIntegers = kUnsigned | kSigned;
constexpr unsigned kNumbers = kIntegers | kFloat | kComplex;

unsigned kind_of(DType dtype) {
  if (is_bool(dtype)) return kBool;
  if (is_signed_integer(dtype)) return kSigned;
  if (is_unsigned_integer(dtype)) return kUnsigned;
  if (is_complex(dtype)) return kComplex;
  return is_float(dtype) ? unsigned{kFloat} : 0u;
}

std::string kind_names(unsigned kinds) {
  std::string out;
  const auto add = [&](unsigned kind, const char* name) {
    if (kinds & kind) out += (out.empty() ? "" : ", ") + std::string(name);
  };
  add(kBool, "bool");
  add(kUnsigned, "unsigned");
  add(kSigned, "signed");
  add(kFloat, "float");
  add(kComplex, "complex");
  return out;
}

std::string full_name(std::string_view op) {
  return op.find('.') == std::string_view::npos ? "stablehlo." + std::string(op) : std::string(op);
}

// Operations that are not listed take floats only (the special functions of CHLO).
unsigned unary_kinds(const std::string& op) {
  static const std::unordered_map<std::string, unsigned> table = {
      {"stablehlo.abs", kNumbers},
      {"stablehlo.cbrt", kFloat | kComplex},
      {"stablehlo.ceil", kIntegers | kFloat},
      {"stablehlo.cosine", kFloat | kComplex},
      {"stablehlo.count_leading_zeros", kIntegers},
      {"stablehlo.exponential", kFloat | kComplex},
      {"stablehlo.exponential_minus_one", kFloat | kComplex},
      {"stablehlo.floor", kIntegers | kFloat},
      {"stablehlo.imag", kNumbers | kBool},
      {"stablehlo.is_finite", kNumbers},
      {"stablehlo.log", kFloat | kComplex},
      {"stablehlo.log_plus_one", kFloat | kComplex},
      {"stablehlo.logistic", kFloat | kComplex},
      {"stablehlo.negate", kNumbers},
      {"stablehlo.not", kBool | kIntegers},
      {"stablehlo.popcnt", kIntegers},
      {"stablehlo.real", kNumbers | kBool},
      {"stablehlo.round_nearest_afz", kIntegers | kFloat},
      {"stablehlo.round_nearest_even", kIntegers | kFloat},
      {"stablehlo.rsqrt", kFloat | kComplex},
      {"stablehlo.sign", kNumbers},
      {"stablehlo.sine", kFloat | kComplex},
      {"stablehlo.sqrt", kFloat | kComplex},
      {"stablehlo.tan", kFloat | kComplex},
      {"stablehlo.tanh", kFloat | kComplex},
      {"chlo.acos", kFloat | kComplex},
      {"chlo.acosh", kFloat | kComplex},
      {"chlo.asin", kFloat | kComplex},
      {"chlo.asinh", kFloat | kComplex},
      {"chlo.atan", kFloat | kComplex},
      {"chlo.atanh", kFloat | kComplex},
      {"chlo.conj", kComplex},
      {"chlo.cosh", kFloat | kComplex},
      {"chlo.sinh", kFloat | kComplex},
      {"chlo.square", kFloat | kComplex},
      {"chlo.tan", kFloat | kComplex},
  };
  const auto found = table.find(op);
  return found == table.end() ? unsigned{kFloat} : found->second;
}

unsigned binary_kinds(const std::string& op) {
  static const std::unordered_map<std::string, unsigned> table = {
      {"stablehlo.add", kNumbers | kBool},
      {"stablehlo.and", kBool | kIntegers},
      {"stablehlo.atan2", kFloat | kComplex},
      {"stablehlo.divide", kNumbers},
      {"stablehlo.maximum", kBool | kIntegers | kFloat},
      {"stablehlo.minimum", kBool | kIntegers | kFloat},
      {"stablehlo.multiply", kNumbers | kBool},
      {"stablehlo.or", kBool | kIntegers},
      {"stablehlo.power", kNumbers},
      {"stablehlo.remainder", kIntegers | kFloat},
      {"stablehlo.shift_left", kIntegers},
      {"stablehlo.shift_right_arithmetic", kIntegers},
      {"stablehlo.shift_right_logical", kIntegers},
      {"stablehlo.subtract", kNumbers},
      {"stablehlo.xor", kBool | kIntegers},
  };
  const auto found = table.find(op);
  return found == table.end() ? unsigned{kFloat} : found->second;
}

bool rounds(const std::string& op) {
  return op == "stablehlo.ceil" || op == "stablehlo.floor" || op.starts_with("stablehlo.round_nearest");
}

}  // namespace

Value Builder::unary(std::string_view op, Value x) {
  const std::string name = full_name(op);
  if (!present(name, {x})) return placeholder({DType::kF32, {}});
  if (!(kind_of(x.dtype()) & unary_kinds(name)))
    return mistake(name, "operand", x.type().text(), kind_names(unary_kinds(name)), x.type());
  const Type boolean{DType::kBool, x.shape()};
  if (name == "stablehlo.real") return real(x);
  if (name == "stablehlo.imag") return imag(x);
  if (name == "stablehlo.is_finite") {
    if (is_complex(x.dtype())) return logical_and(unary(op, real(x)), unary(op, imag(x)));
    return is_float(x.dtype()) ? emit_one(name, {x}, boolean) : constant_int(boolean, 1);
  }
  if (name.starts_with("chlo.is_")) return emit_one(name, {x}, boolean);
  if (rounds(name) && is_integer(x.dtype())) return x;
  if (name == "stablehlo.abs" && is_unsigned_integer(x.dtype())) return x;
  if (name == "stablehlo.sign" && is_unsigned_integer(x.dtype())) return convert(convert(x, DType::kBool), x.dtype());
  if (name == "stablehlo.abs") return emit_one(name, {x}, {real_of(x.dtype()), x.shape()});
  return emit_one(name, {x}, x.type());
}

Value Builder::binary(std::string_view op, Value x, Value y) {
  const std::string name = full_name(op);
  if (!present(name, {x, y})) return placeholder({DType::kF32, {}});
  if (!same_type(name, x, y)) return placeholder(x.type());
  if (!(kind_of(x.dtype()) & binary_kinds(name)))
    return mistake(name, "operands", x.type().text(), kind_names(binary_kinds(name)), x.type());
  return emit_one(name, {x, y}, x.type());
}

Value Builder::compare(Value x, Value y, Compare direction, CompareKind kind) {
  static constexpr const char* kNames[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  constexpr const char* kOp = "stablehlo.compare";
  if (!present(kOp, {x, y})) return placeholder({DType::kBool, {}});
  const Type type{DType::kBool, x.shape()};
  if (!same_type(kOp, x, y)) return placeholder(type);
  if (is_complex(x.dtype()) && direction != Compare::kEQ && direction != Compare::kNE)
    return mistake(kOp, "order of", x.type().text(), "real operands", type);
  std::string attributes = std::string("comparison_direction = #stablehlo<comparison_direction ") +
                           kNames[static_cast<int>(direction)] + ">";
  if (kind == CompareKind::kTotalOrder && is_float(x.dtype()))
    attributes += ", compare_type = #stablehlo<comparison_type TOTALORDER>";
  return emit_one(kOp, {x, y}, type, attributes);
}

Value Builder::is_nan(Value x) {
  if (!present("is_nan", {x})) return placeholder({DType::kBool, {}});
  if (is_complex(x.dtype())) return logical_or(is_nan(real(x)), is_nan(imag(x)));
  if (!is_float(x.dtype())) return constant_int({DType::kBool, x.shape()}, 0);
  return ne(x, x);
}

Value Builder::select(Value pred, Value on_true, Value on_false) {
  constexpr const char* kOp = "stablehlo.select";
  if (!present(kOp, {pred, on_true, on_false})) return placeholder(on_true.type());
  if (!same_type(kOp, on_true, on_false)) return placeholder(on_true.type());
  if (!is_bool(pred.dtype()) || (pred.rank() != 0 && pred.shape() != on_true.shape()))
    return mistake(kOp, "predicate", pred.type().text(), Type{DType::kBool, on_true.shape()}.text() + " or tensor<i1>",
                   on_true.type());
  return emit_one(kOp, {pred, on_true, on_false}, on_true.type());
}

Value Builder::clamp(Value lo, Value x, Value hi) {
  constexpr const char* kOp = "stablehlo.clamp";
  if (!present(kOp, {lo, x, hi})) return placeholder(x.type());
  if (is_complex(x.dtype())) return mistake(kOp, "operand", x.type().text(), "a real dtype", x.type());
  for (const Value& bound : {lo, hi})
    if (bound.dtype() != x.dtype() || (bound.rank() != 0 && bound.shape() != x.shape()))
      return mistake(kOp, "bound", bound.type().text(), x.type().text() + " or its rank-0 form", x.type());
  // The spec allows both bounds of rank 0 or both of full shape; engines check each by itself.
  return emit_one(kOp, {lo, x, hi}, x.type());
}

// --- conversion ------------------------------------------------------------------------------------------------------

// PyTorch's CPU conversions from floats to narrow integers go through a wider integer, so that -1.0 becomes 255 in
// uint8; what does not fit the wide one becomes its minimum, whose low bits are zero.
Value Builder::convert_from_float(Value x, DType dtype) {
  const auto plain = [this](Value v, DType to) { return emit_one("stablehlo.convert", {v}, {to, v.shape()}); };
  if (is_float8(x.dtype())) x = plain(x, DType::kF32);
  if (dtype == x.dtype() || dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kF32 ||
      dtype == DType::kF64)
    return dtype == x.dtype() ? x : plain(x, dtype);
  if (is_integer(dtype)) {
    const DType wide = byte_size(dtype) < 4 ? DType::kI32 : DType::kI64;
    const Value limit = constant(x.type(), wide == DType::kI32 ? 0x1p31 : 0x1p63);
    const Value fits = lt(x, limit);
    const Value low = select(fits, plain(x, wide), constant_int({wide, x.shape()}, 0));
    if (dtype == DType::kU64) return select(fits, plain(low, dtype), plain(x, dtype));
    return plain(low, dtype);
  }
  if (x.dtype() == DType::kF64 || is_float8(dtype)) x = x.dtype() == DType::kF32 ? x : plain(x, DType::kF32);
  if (dtype == DType::kF8E4M3FN) x = clamp(scalar(DType::kF32, -448), x, scalar(DType::kF32, 448));
  if (dtype == DType::kF8E8M0FNU) {
    // The biased exponent, rounded up from a mantissa of 1.5 on; inf and nan give 255.
    const Type word{DType::kU32, x.shape()};
    Value bits = logical_and(bitcast(x, word), constant_int(word, 0x7FFFFFFF));
    bits = shift_right_logical(add(bits, constant_int(word, 0x400000)), constant_int(word, 23));
    bits = select(eq(logical_and(bitcast(x, word), constant_int(word, 0x7F800000)), constant_int(word, 0x7F800000)),
                  constant_int(word, 255), bits);
    return bitcast(plain(bits, DType::kU8), {dtype, x.shape()});
  }
  return plain(x, dtype);
}

Value Builder::convert(Value x, DType dtype) {
  constexpr const char* kOp = "stablehlo.convert";
  if (!present(kOp, {x})) return placeholder({dtype, {}});
  if (dtype == DType::kInvalid) return mistake(kOp, "result dtype", "invalid", "a dtype");
  if (x.dtype() == dtype) return x;
  const Type type{dtype, x.shape()};
  if (is_bool(dtype)) return ne(x, zeros_like(x));
  if (is_complex(x.dtype())) {
    if (is_complex(dtype)) return complex(convert(real(x), real_of(dtype)), convert(imag(x), real_of(dtype)));
    return convert(real(x), dtype);
  }
  if (is_complex(dtype)) {
    const Value re = convert(x, real_of(dtype));
    return complex(re, zeros_like(re));
  }
  if (is_float(x.dtype())) return convert_from_float(x, dtype);
  // Integers and bool. PyTorch makes narrow floats through float32.
  if (is_float(dtype) && dtype != DType::kF32 && dtype != DType::kF64)
    return convert_from_float(emit_one(kOp, {x}, {DType::kF32, x.shape()}), dtype);
  return emit_one(kOp, {x}, type);
}

Value Builder::complex(Value re, Value im) {
  constexpr const char* kOp = "stablehlo.complex";
  if (!present(kOp, {re, im})) return placeholder({DType::kC64, {}});
  const Type type{complex_of(re.dtype()), re.shape()};
  if (!same_type(kOp, re, im)) return placeholder(type);
  if (re.dtype() != DType::kF32 && re.dtype() != DType::kF64)
    return mistake(kOp, "operands", re.type().text(), "f32 or f64", type);
  return emit_one(kOp, {re, im}, type);
}

Value Builder::real(Value x) {
  if (!present("stablehlo.real", {x})) return placeholder({DType::kF32, {}});
  return is_complex(x.dtype()) ? emit_one("stablehlo.real", {x}, {real_of(x.dtype()), x.shape()}) : x;
}

Value Builder::imag(Value x) {
  if (!present("stablehlo.imag", {x})) return placeholder({DType::kF32, {}});
  return is_complex(x.dtype()) ? emit_one("stablehlo.imag", {x}, {real_of(x.dtype()), x.shape()}) : zeros_like(x);
}

// --- reinterpretation ------------------------------------------------------------------------------------------------

namespace {

// The shape that bytes of `from` have in elements of `size` bytes: a wider element eats the last dimension, a
// narrower one adds one (spec: bitcast_convert).
std::optional<Shape> reinterpreted(Shape from, int64_t from_size, int64_t size) {
  if (size > from_size) {
    if (from.empty() || from.back() != size / from_size) return std::nullopt;
    from.pop_back();
  } else if (size < from_size) {
    from.push_back(from_size / size);
  }
  return from;
}

}  // namespace

// Neither side is bool or complex.
Value Builder::bitcast_real(Value x, const Type& to) {
  if (x.type() == to) return x;
  return emit_one("stablehlo.bitcast_convert", {x}, to);
}

Value Builder::bitcast(Value x, const Type& to) {
  constexpr const char* kOp = "stablehlo.bitcast_convert";
  if (!present(kOp, {x})) return placeholder(to);
  if (x.type() == to) return x;
  if (to.dtype == DType::kInvalid) return mistake(kOp, "result dtype", "invalid", "a dtype");
  const int64_t from_size = byte_size(x.dtype()), to_size = byte_size(to.dtype);
  const auto expected = reinterpreted(x.shape(), from_size, to_size);
  if (!expected || *expected != to.shape)
    return mistake(kOp, "from " + x.type().text(), to.text(),
                   expected ? to_string(*expected) : "a last dimension that fills one element", to);
  // The engines' bool is one bit wide, ours one byte.
  if (is_bool(x.dtype())) return bitcast(convert(x, DType::kU8), to);
  if (is_bool(to.dtype)) return convert(bitcast(x, {DType::kU8, to.shape}), DType::kBool);
  if (is_complex(x.dtype())) {
    // bitcast_convert takes no complex types: go through a trailing dimension (real, imaginary).
    Shape pair = x.shape();
    pair.push_back(1);
    Value parts = concatenate({reshape(real(x), pair), reshape(imag(x), pair)}, x.rank());
    const int64_t part = from_size / 2;
    Shape shape = parts.shape();
    if (to_size > part) {
      shape.assign(to.shape.begin(), to.shape.end());
      shape.push_back(to_size / part);
      return bitcast(reshape(parts, shape), to);
    }
    if (to_size < part) shape.push_back(part / to_size);
    return reshape(bitcast(parts, {to.dtype, shape}), to.shape);
  }
  if (is_complex(to.dtype)) {
    const DType part = real_of(to.dtype);
    Shape pair = to.shape;
    pair.push_back(2);
    Value source = x;
    const int64_t part_size = byte_size(part);
    if (from_size < part_size) {
      Shape split = pair;
      split.push_back(part_size / from_size);
      source = reshape(x, split);
    } else if (from_size > part_size) {
      Shape split = x.shape();
      split.push_back(from_size / part_size);
      return bitcast(reshape(bitcast(x, {part, split}), pair), to);
    }
    const Value parts = bitcast(source, {part, pair});
    const int64_t last = static_cast<int64_t>(pair.size()) - 1;
    return complex(reshape(slice_dim(parts, last, 0, 1), to.shape), reshape(slice_dim(parts, last, 1, 2), to.shape));
  }
  return bitcast_real(x, to);
}

}  // namespace torch_tpu::hlo
