#include "base/dtype.h"

#include <array>

namespace torch_tpu {
namespace {

enum Kind : uint8_t { kNone, kBoolean, kSigned, kUnsigned, kFloating, kFloating8, kComplex };

struct Facts {
  int64_t bytes;
  std::string_view hlo;
  std::string_view torch;
  Kind kind;
};

// In the order of DType.
constexpr std::array<Facts, 21> kFacts = {{
    {0, "invalid", "invalid", kNone},
    {1, "i1", "bool", kBoolean},
    {1, "ui8", "uint8", kUnsigned},
    {1, "i8", "int8", kSigned},
    {2, "i16", "int16", kSigned},
    {4, "i32", "int32", kSigned},
    {8, "i64", "int64", kSigned},
    {2, "ui16", "uint16", kUnsigned},
    {4, "ui32", "uint32", kUnsigned},
    {8, "ui64", "uint64", kUnsigned},
    {2, "f16", "float16", kFloating},
    {2, "bf16", "bfloat16", kFloating},
    {4, "f32", "float32", kFloating},
    {8, "f64", "float64", kFloating},
    {8, "complex<f32>", "complex64", kComplex},
    {16, "complex<f64>", "complex128", kComplex},
    {1, "f8E4M3FN", "float8_e4m3fn", kFloating8},
    {1, "f8E5M2", "float8_e5m2", kFloating8},
    {1, "f8E4M3FNUZ", "float8_e4m3fnuz", kFloating8},
    {1, "f8E5M2FNUZ", "float8_e5m2fnuz", kFloating8},
    {1, "f8E8M0FNU", "float8_e8m0fnu", kFloating8},
}};
static_assert(kFacts.size() == static_cast<size_t>(DType::kF8E8M0FNU) + 1);

const Facts& facts(DType dtype) { return kFacts[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t byte_size(DType dtype) { return facts(dtype).bytes; }
std::string_view hlo_name(DType dtype) { return facts(dtype).hlo; }
std::string_view torch_name(DType dtype) { return facts(dtype).torch; }

bool is_bool(DType dtype) { return dtype == DType::kBool; }
bool is_signed_integer(DType dtype) { return facts(dtype).kind == kSigned; }
bool is_unsigned_integer(DType dtype) { return facts(dtype).kind == kUnsigned; }
bool is_integer(DType dtype) { return is_signed_integer(dtype) || is_unsigned_integer(dtype); }
bool is_float8(DType dtype) { return facts(dtype).kind == kFloating8; }
bool is_float(DType dtype) { return facts(dtype).kind == kFloating || is_float8(dtype); }
bool is_complex(DType dtype) { return facts(dtype).kind == kComplex; }

DType real_of(DType dtype) {
  if (dtype == DType::kC64) return DType::kF32;
  if (dtype == DType::kC128) return DType::kF64;
  return dtype;
}

DType complex_of(DType dtype) { return dtype == DType::kF64 || dtype == DType::kC128 ? DType::kC128 : DType::kC64; }

DType compute_dtype(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || is_float8(dtype) ? DType::kF32 : dtype;
}

}  // namespace torch_tpu
