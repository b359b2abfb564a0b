// Numbers as 0-d device buffers, uploaded once while they recur.
#pragma once

#include "runtime/slot.h"

namespace torch_tpu::aten {

// The buffer for a number of this dtype, given as its bytes in host memory. Never donated.
runtime::ValueRef device_scalar(int device, DType dtype, const unsigned char* bytes);
void clear_scalar_cache();

}  // namespace torch_tpu::aten
