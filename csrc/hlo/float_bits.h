// Rounding of doubles to the bit patterns of narrow float types, as PyTorch rounds: to nearest, ties to even.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace torch_tpu::hlo {

// The bits of `v` rounded to a float dtype. Out of range: inf where the type has it, else nan, except f8E4M3FN, which
// saturates at +-448 as PyTorch's conversion does. NaN gives the type's canonical quiet NaN.
uint64_t float_bits(DType dtype, double v);

// The value of such bits, exactly.
double float_value(DType dtype, uint64_t bits);

// Largest finite value of a float dtype; the lowest is its negative (f8E8M0FNU has no sign: its lowest is 2^-127).
double largest_finite(DType dtype);
// True if the dtype has infinities.
bool has_infinity(DType dtype);

}  // namespace torch_tpu::hlo
