#include "hlo/float_bits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace torch_tpu::hlo {
namespace {

// What lies beyond the largest finite value.
enum class Overflow { kInfinity, kNan, kSaturate };

struct Format {
  int exponent_bits, mantissa_bits, bias;
  double largest;
  uint64_t nan;
  uint64_t infinity;  // 0: none
  Overflow overflow;
  bool negative_zero;
};

// FNUZ kinds: one zero, and the pattern of negative zero is the only NaN.
Format format(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {5, 10, 15, 65504.0, 0x7E00, 0x7C00, Overflow::kInfinity, true};
    case DType::kBF16:
      return {8, 7, 127, 0x1.FEp127, 0x7FC0, 0x7F80, Overflow::kInfinity, true};
    case DType::kF8E4M3FN:
      return {4, 3, 7, 448.0, 0x7F, 0, Overflow::kSaturate, true};
    case DType::kF8E5M2:
      return {5, 2, 15, 57344.0, 0x7E, 0x7C, Overflow::kInfinity, true};
    case DType::kF8E4M3FNUZ:
      return {4, 3, 8, 240.0, 0x80, 0, Overflow::kNan, false};
    case DType::kF8E5M2FNUZ:
      return {5, 2, 16, 57344.0, 0x80, 0, Overflow::kNan, false};
    default:
      return {11,
              52,
              1023,
              std::numeric_limits<double>::max(),
              0x7FF8000000000000,
              0x7FF0000000000000,
              Overflow::kInfinity,
              true};
  }
}

// Powers of two only: the biased exponent, rounded up from 1.5 on; the sign is dropped; inf and nan are 255.
uint64_t e8m0_bits(double v) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(v)) & 0x7FFFFFFF;
  if (bits >= 0x7F800000) return 255;
  return (bits + 0x400000) >> 23;
}

}  // namespace

uint64_t float_bits(DType dtype, double v) {
  if (dtype == DType::kF64) return std::isnan(v) ? 0x7FF8000000000000 : std::bit_cast<uint64_t>(v);
  if (dtype == DType::kF32) return std::isnan(v) ? 0x7FC00000 : std::bit_cast<uint32_t>(static_cast<float>(v));
  if (dtype == DType::kF8E8M0FNU) return e8m0_bits(v);
  const Format f = format(dtype);
  if (std::isnan(v)) return f.nan;
  const uint64_t sign = std::signbit(v) ? uint64_t{1} << (f.exponent_bits + f.mantissa_bits) : 0;
  const double magnitude = std::fabs(v);
  if (magnitude == 0) return f.negative_zero ? sign : 0;
  double rounded = std::numeric_limits<double>::infinity();
  uint64_t bits = 0;
  if (std::isfinite(magnitude)) {
    const int smallest = 1 - f.bias;  // exponent of the smallest normal number
    const int exponent = std::max(std::ilogb(magnitude), smallest);
    const double steps = std::nearbyint(std::scalbn(magnitude, f.mantissa_bits - exponent));
    rounded = std::scalbn(steps, exponent - f.mantissa_bits);
    // A normal's steps include the hidden bit, so adding them carries into the exponent field by itself.
    bits = (static_cast<uint64_t>(exponent - smallest) << f.mantissa_bits) + static_cast<uint64_t>(steps);
  }
  if (rounded > f.largest) {
    if (f.overflow == Overflow::kNan) return f.nan;
    if (f.overflow == Overflow::kInfinity) return sign | f.infinity;
    return sign | float_bits(dtype, f.largest);
  }
  if (bits == 0 && !f.negative_zero) return 0;
  return sign | bits;
}

double float_value(DType dtype, uint64_t bits) {
  if (dtype == DType::kF64) return std::bit_cast<double>(bits);
  if (dtype == DType::kF32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if (dtype == DType::kF8E8M0FNU)
    return bits == 255 ? std::numeric_limits<double>::quiet_NaN() : std::scalbn(1.0, static_cast<int>(bits) - 127);
  const Format f = format(dtype);
  const uint64_t sign_bit = uint64_t{1} << (f.exponent_bits + f.mantissa_bits);
  const double sign = bits & sign_bit ? -1.0 : 1.0;
  if (!f.negative_zero && bits == sign_bit) return std::numeric_limits<double>::quiet_NaN();
  const uint64_t magnitude = bits & (sign_bit - 1);
  if (f.infinity && magnitude == f.infinity) return sign * std::numeric_limits<double>::infinity();
  const uint64_t mantissa = magnitude & ((uint64_t{1} << f.mantissa_bits) - 1);
  const int field = static_cast<int>(magnitude >> f.mantissa_bits);
  const double value =
      field == 0 ? std::scalbn(static_cast<double>(mantissa), 1 - f.bias - f.mantissa_bits)
                 : std::scalbn(1.0 + std::scalbn(static_cast<double>(mantissa), -f.mantissa_bits), field - f.bias);
  return value > f.largest ? std::numeric_limits<double>::quiet_NaN() : sign * value;
}

double largest_finite(DType dtype) {
  if (dtype == DType::kF32) return std::numeric_limits<float>::max();
  if (dtype == DType::kF8E8M0FNU) return 0x1p127;
  return format(dtype).largest;
}

bool has_infinity(DType dtype) {
  return dtype == DType::kF32 || (dtype != DType::kF8E8M0FNU && format(dtype).infinity != 0);
}

}  // namespace torch_tpu::hlo
