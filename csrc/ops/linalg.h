// Building blocks of the dense linear algebra rules. Matrices are the last two dims, everything before is batch.
#pragma once

#include "ops/expr.h"
#include "ops/table.h"

namespace torch_tpu::ops {

Value swap_last(Context& c, Value x);
// The conjugate transpose.
Value adjoint(Context& c, Value x);
// x with everything above (lower) or below the diagonal set to zero.
Value triangle(Context& c, Value x, bool lower);
// The Hermitian matrix whose lower (or upper) triangle x holds; the other one is not read, the diagonal is taken as
// real.
Value hermitian(Context& c, Value x, bool lower);
// Batched identity of x's dtype: [batch..., n, n].
Value identity(Context& c, DType dtype, const Shape& batch, int64_t n);
// Row / column `from` up to `to` of the last two dims.
Value rows_of(Context& c, Value x, int64_t from, int64_t to);
Value columns_of(Context& c, Value x, int64_t from, int64_t to);
// All batch dims as one: [B, m, n].
Value as_one_batch(Context& c, Value x);
// Batch dims broadcast to one another.
Value with_batch(Context& c, Value x, const Shape& batch);
Shape common_batch(Value a, Value b);
// x y, batch dims equal.
Value matrix_product(Context& c, Value x, Value y);
// a x = b (left) or x a = b for a triangular a; batch dims broadcast.
Value solve_triangular(Context& c, Value a, Value b, bool left, bool upper, bool unit, hlo::Transpose transpose);

// The pivots of elimination without exchanges, [batch..., n]: all positive exactly for a positive definite matrix.
Value elimination_pivots(Context& c, Value a);

void add_lu_rows(Rows& rows);           // linalg_lu.cc
void add_orthogonal_rows(Rows& rows);   // linalg_orthogonal.cc
void add_exponential_rows(Rows& rows);  // linalg_exponential.cc
void add_fft_rows(Rows& rows);          // fft.cc

}  // namespace torch_tpu::ops
