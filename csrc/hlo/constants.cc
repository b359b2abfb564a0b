// Constants: how numbers are spelled inside dense<...>, and the table that emits each one once per region.
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "hlo/attributes.h"
#include "hlo/builder.h"
#include "hlo/float_bits.h"

namespace torch_tpu::hlo {
namespace {

// Longer lists go as raw little-endian bytes in hex: the parser reads those several times faster.
constexpr size_t kLongestList = 32;

std::string hex(uint64_t bits, int64_t bytes) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out = "0x";
  for (int64_t i = bytes * 8 - 4; i >= 0; i -= 4) out += kDigits[(bits >> i) & 15];
  return out;
}

// Bytes in memory order.
void append_raw(std::string& out, uint64_t bits, int64_t bytes) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  for (int64_t i = 0; i < bytes; ++i) {
    const auto byte = static_cast<unsigned>((bits >> (8 * i)) & 255);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
}

// Decimal only where it is short and exact; the parser reads decimals through double.
std::string float_literal(DType dtype, double v) {
  const uint64_t bits = float_bits(dtype, v);
  const double rounded = float_value(dtype, bits);
  if (std::isfinite(rounded) && !is_float8(dtype)) {
    char buffer[32];
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), rounded).ptr;
    std::string text(buffer, end);
    if (text.size() <= 10) {
      const size_t e = text.find('e');
      if (text.substr(0, e).find('.') == std::string::npos) text.insert(e == std::string::npos ? text.size() : e, ".0");
      return text;
    }
  }
  return hex(bits, byte_size(dtype));
}

// The bits of v in an integer dtype of this width: two's complement, wrapping.
uint64_t wrapped(DType dtype, int64_t v) {
  const int64_t bytes = byte_size(dtype);
  const auto bits = static_cast<uint64_t>(v);
  return bytes == 8 ? bits : bits & ((uint64_t{1} << (8 * bytes)) - 1);
}

std::string integer_literal(DType dtype, int64_t v) {
  const uint64_t bits = wrapped(dtype, v);
  if (is_unsigned_integer(dtype)) return std::to_string(bits);
  const int64_t shift = 64 - 8 * byte_size(dtype);
  return std::to_string(static_cast<int64_t>(bits << shift) >> shift);
}

// Truncates towards zero, limits out-of-range values to the dtype's ends; nan gives 0.
std::string integer_from_double(DType dtype, double v) {
  if (std::isnan(v)) return "0";
  const int bits = static_cast<int>(8 * byte_size(dtype));
  if (is_unsigned_integer(dtype)) {
    if (v <= 0) return "0";
    if (v >= std::scalbn(1.0, bits)) return integer_literal(dtype, -1);
    return std::to_string(static_cast<uint64_t>(v));
  }
  const double limit = std::scalbn(1.0, bits - 1);
  const int64_t highest = std::numeric_limits<int64_t>::max() >> (64 - bits);
  if (v >= limit) return std::to_string(highest);
  if (v < -limit) return std::to_string(-highest - 1);
  return std::to_string(static_cast<int64_t>(v));
}

std::string pair_literal(DType dtype, std::complex<double> v) {
  const DType part = real_of(dtype);
  return "(" + float_literal(part, v.real()) + ", " + float_literal(part, v.imag()) + ")";
}

}  // namespace

Value Builder::constant_literal(const Type& type, const std::string& literal) {
  if (type.dtype == DType::kInvalid) return mistake("stablehlo.constant", "dtype", "invalid", "a dtype");
  for (int64_t size : type.shape)
    if (size < 0) return mistake("stablehlo.constant", "shape", to_string(type.shape), "sizes of at least 0");
  const std::string value = "dense<" + (element_count(type.shape) == 0 ? "" : literal) + "> : " + type.text();
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (auto found = scope->constants.find(value); found != scope->constants.end()) return found->second;
  const Value result = emit_one("stablehlo.constant", {}, type, "value = " + value);
  if (!error_) scopes_.back().constants.emplace(value, result);
  return result;
}

Value Builder::constant(const Type& type, double v) {
  const DType dtype = type.dtype;
  if (is_bool(dtype)) return constant_literal(type, v != 0 ? "true" : "false");
  if (is_integer(dtype)) return constant_literal(type, integer_from_double(dtype, v));
  if (is_complex(dtype)) return constant_literal(type, pair_literal(dtype, v));
  if (is_float(dtype)) return constant_literal(type, float_literal(dtype, v));
  return mistake("stablehlo.constant", "dtype", "invalid", "a dtype");
}

Value Builder::constant_int(const Type& type, int64_t v) {
  if (is_bool(type.dtype)) return constant_literal(type, v != 0 ? "true" : "false");
  if (is_integer(type.dtype)) return constant_literal(type, integer_literal(type.dtype, v));
  // PyTorch converts integers to narrow floats through float32.
  if (type.dtype != DType::kF64 && type.dtype != DType::kC128) return constant(type, static_cast<float>(v));
  return constant(type, static_cast<double>(v));
}

Value Builder::constant_uint(const Type& type, uint64_t v) {
  if (is_bool(type.dtype) || is_integer(type.dtype))
    return constant_int(type, static_cast<int64_t>(v) | (v != 0 && is_bool(type.dtype)));
  if (type.dtype != DType::kF64 && type.dtype != DType::kC128) return constant(type, static_cast<float>(v));
  return constant(type, static_cast<double>(v));
}

Value Builder::constant_complex(const Type& type, std::complex<double> v) {
  if (!is_complex(type.dtype)) {
    if (v.imag() != 0)
      return mistake("stablehlo.constant", "dtype of a complex number", type.text(), "a complex dtype", type);
    return constant(type, v.real());
  }
  return constant_literal(type, pair_literal(type.dtype, v));
}

Value Builder::vector_int(DType dtype, const std::vector<int64_t>& v) {
  const Type type{dtype, {static_cast<int64_t>(v.size())}};
  if (!is_bool(dtype) && !is_integer(dtype))
    return mistake("stablehlo.constant", "dtype of an integer list", type.text(), "an integer dtype", type);
  std::string literal;
  if (v.size() > kLongestList && !is_bool(dtype)) {
    literal = "\"0x";
    for (int64_t x : v) append_raw(literal, wrapped(dtype, x), byte_size(dtype));
    return constant_literal(type, literal + "\"");
  }
  for (int64_t x : v) {
    literal += literal.empty() ? "[" : ", ";
    literal += is_bool(dtype) ? (x ? "true" : "false") : integer_literal(dtype, x);
  }
  return constant_literal(type, literal + "]");
}

Value Builder::vector(DType dtype, const std::vector<double>& v) {
  const Type type{dtype, {static_cast<int64_t>(v.size())}};
  if (!is_float(dtype))
    return mistake("stablehlo.constant", "dtype of a float list", type.text(), "a float dtype", type);
  std::string literal;
  if (v.size() > kLongestList) {
    literal = "\"0x";
    for (double x : v) append_raw(literal, float_bits(dtype, x), byte_size(dtype));
    return constant_literal(type, literal + "\"");
  }
  for (double x : v) literal += (literal.empty() ? "[" : ", ") + float_literal(dtype, x);
  return constant_literal(type, literal + "]");
}

Value Builder::max_value(const Type& type) {
  if (is_float(type.dtype) && !has_infinity(type.dtype)) return max_finite(type);
  return constant(type, std::numeric_limits<double>::infinity());
}

Value Builder::min_value(const Type& type) {
  if (is_bool(type.dtype)) return constant_int(type, 0);
  if (is_float(type.dtype) && !has_infinity(type.dtype)) return lowest_finite(type);
  return constant(type, -std::numeric_limits<double>::infinity());
}

Value Builder::max_finite(const Type& type) {
  return is_float(type.dtype) ? constant(type, largest_finite(type.dtype)) : max_value(type);
}

Value Builder::lowest_finite(const Type& type) {
  if (type.dtype == DType::kF8E8M0FNU) return constant(type, 0x1p-127);
  return is_float(type.dtype) ? constant(type, -largest_finite(type.dtype)) : min_value(type);
}

Value Builder::iota(const Type& type, int64_t dim) {
  if (type.dtype == DType::kInvalid) return mistake("stablehlo.iota", "dtype", "invalid", "a dtype");
  if (dim < 0) dim += static_cast<int64_t>(type.shape.size());
  if (dim < 0 || dim >= static_cast<int64_t>(type.shape.size()))
    return mistake("stablehlo.iota", "dimension", std::to_string(dim), "a dimension of " + type.text(), type);
  if (is_bool(type.dtype)) return convert(iota({DType::kI32, type.shape}, dim), type.dtype);
  return emit_one("stablehlo.iota", {}, type, i64_attribute("iota_dimension", dim));
}

}  // namespace torch_tpu::hlo
