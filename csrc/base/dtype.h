// Element types: the facts every room needs about them (size, kind, StableHLO spelling).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace torch_tpu {

enum class DType : uint8_t {
  kInvalid,
  kBool,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kU16,
  kU32,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
  kC128,
  kF8E4M3FN,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF8E8M0FNU,
};

// Bytes of one element in a PJRT buffer and in host memory (bool is one byte).
int64_t byte_size(DType dtype);

// StableHLO spelling of the element type: "i1", "ui8", "bf16", "complex<f32>", ...
std::string_view hlo_name(DType dtype);

// PyTorch's spelling, for messages: "bool", "uint8", "float32", ...
std::string_view torch_name(DType dtype);

bool is_bool(DType dtype);
bool is_signed_integer(DType dtype);
bool is_unsigned_integer(DType dtype);
// Signed or unsigned integers; bool is not one of them.
bool is_integer(DType dtype);
bool is_float8(DType dtype);
// f16, bf16, f32, f64 and the fp8 kinds.
bool is_float(DType dtype);
bool is_complex(DType dtype);

// complex64 -> f32, complex128 -> f64; any other dtype is returned unchanged.
DType real_of(DType dtype);
// f32 -> complex64, f64 -> complex128, others -> complex64.
DType complex_of(DType dtype);

// The dtype PyTorch accumulates and computes transcendental functions in: f16, bf16, fp8 -> f32; others unchanged.
DType compute_dtype(DType dtype);

}  // namespace torch_tpu
