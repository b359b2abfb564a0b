// Pieces of the random rows that live in files of their own.
#pragma once

#include "ops/philox.h"

namespace torch_tpu::ops {

// The dtype random floats for a result of `dtype` are drawn in: f64 for f64 and complex128, else f32.
DType draw_dtype(DType dtype);

void add_multinomial_rows(Rows& rows);
void add_rejection_rows(Rows& rows);

}  // namespace torch_tpu::ops
