// Our dtypes and PJRT's buffer types.
#pragma once

#include <pjrt_c_api.h>

#include "base/dtype.h"

namespace torch_tpu::pjrt {

// PJRT_Buffer_Type_INVALID for kInvalid; it must never reach a plugin, which aborts on it.
inline PJRT_Buffer_Type buffer_type(DType dtype) {
  switch (dtype) {
    case DType::kInvalid:
      return PJRT_Buffer_Type_INVALID;
    case DType::kBool:
      return PJRT_Buffer_Type_PRED;
    case DType::kU8:
      return PJRT_Buffer_Type_U8;
    case DType::kI8:
      return PJRT_Buffer_Type_S8;
    case DType::kI16:
      return PJRT_Buffer_Type_S16;
    case DType::kI32:
      return PJRT_Buffer_Type_S32;
    case DType::kI64:
      return PJRT_Buffer_Type_S64;
    case DType::kU16:
      return PJRT_Buffer_Type_U16;
    case DType::kU32:
      return PJRT_Buffer_Type_U32;
    case DType::kU64:
      return PJRT_Buffer_Type_U64;
    case DType::kF16:
      return PJRT_Buffer_Type_F16;
    case DType::kBF16:
      return PJRT_Buffer_Type_BF16;
    case DType::kF32:
      return PJRT_Buffer_Type_F32;
    case DType::kF64:
      return PJRT_Buffer_Type_F64;
    case DType::kC64:
      return PJRT_Buffer_Type_C64;
    case DType::kC128:
      return PJRT_Buffer_Type_C128;
    case DType::kF8E4M3FN:
      return PJRT_Buffer_Type_F8E4M3FN;
    case DType::kF8E5M2:
      return PJRT_Buffer_Type_F8E5M2;
    case DType::kF8E4M3FNUZ:
      return PJRT_Buffer_Type_F8E4M3FNUZ;
    case DType::kF8E5M2FNUZ:
      return PJRT_Buffer_Type_F8E5M2FNUZ;
    case DType::kF8E8M0FNU:
      return PJRT_Buffer_Type_F8E8M0FNU;
  }
  return PJRT_Buffer_Type_INVALID;
}

inline DType dtype_of(PJRT_Buffer_Type type) {
  for (int i = 1; i <= static_cast<int>(DType::kF8E8M0FNU); ++i)
    if (buffer_type(static_cast<DType>(i)) == type) return static_cast<DType>(i);
  return DType::kInvalid;
}

}  // namespace torch_tpu::pjrt
