// Triangular systems and Cholesky factors. LU, QR, eigenvalue and singular value problems have no row: they run on the
// host through LAPACK (a counted fallback).
#include "ops/expr.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

using hlo::Transpose;

Value swap_last(Context& c, Value x) {
  Dims order;
  for (int64_t i = 0; i < x.rank(); ++i) order.push_back(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return c.b.transpose(x, order);
}

Value conjugate(Context& c, Value x) {
  return is_complex(x.dtype()) ? c.b.complex(c.b.real(x), c.b.neg(c.b.imag(x))) : x;
}

Value adjoint(Context& c, Value x) { return conjugate(c, swap_last(c, x)); }

// x with everything above (lower) or below the diagonal set to zero.
Value triangle(Context& c, Value x, bool lower) {
  const Type index{DType::kI64, x.shape()};
  Value row = c.b.iota(index, x.rank() - 2), column = c.b.iota(index, x.rank() - 1);
  return c.b.select(lower ? c.b.ge(row, column) : c.b.le(row, column), x, c.b.zeros_like(x));
}

// The lower Cholesky factor, read from the given triangle of x.
Value factor(Context& c, Value x, bool upper) {
  if (x.numel() == 0) return x;
  return triangle(c, c.b.cholesky(upper ? adjoint(c, x) : x, /*lower=*/true), /*lower=*/true);
}

// LAPACK's info: 0, or the order of the first leading minor that is not positive (where the factor turns NaN).
Value first_bad_minor(Context& c, Value lower, const Type& type) {
  if (lower.numel() == 0) return c.b.zeros(type);
  Value plain = is_complex(lower.dtype()) ? c.b.real(lower) : lower;
  const Type index{DType::kI32, lower.shape()};
  Value row = c.b.iota(index, lower.rank() - 2);
  Value order = c.b.add(row, c.b.ones(index));
  Value none = c.b.max_value(index);
  Value bad = c.b.reduce_min(c.b.select(c.b.is_nan(plain), order, none), {lower.rank() - 2, lower.rank() - 1});
  return c.b.convert(c.b.select(c.b.eq(bad, c.b.max_value(bad.type())), c.b.zeros_like(bad), bad), type.dtype);
}

// (self, upper, check_errors) -> L, info
Values cholesky_ex(Context& c, const Args& args) {
  const bool upper = args.flag_or(1, false);
  Value lower = factor(c, args.tensor(0), upper);
  Value info = first_bad_minor(c, lower, c.out(1));
  return {upper ? adjoint(c, lower) : lower, info};
}

Values cholesky(Context& c, const Args& args) {
  const bool upper = args.flag_or(1, false);
  Value lower = factor(c, args.tensor(0), upper);
  return {upper ? adjoint(c, lower) : lower};
}

// Batch dims broadcast to one another.
Value with_batch(Context& c, Value x, const Shape& batch) {
  Shape shape = batch;
  shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
  return c.b.broadcast(x, shape);
}

Shape common_batch(Value a, Value b) {
  return broadcast_shapes(
      {Shape(a.shape().begin(), a.shape().end() - 2), Shape(b.shape().begin(), b.shape().end() - 2)});
}

Value solve(Context& c, Value a, Value b, bool left, bool upper, bool unit, Transpose transpose) {
  const Shape batch = common_batch(a, b);
  a = with_batch(c, a, batch);
  b = with_batch(c, b, batch);
  if (b.numel() == 0) return b;
  return c.b.triangular_solve(a, b, left, !upper, unit, transpose);
}

// (self, B, upper, left, unitriangular)
Values linalg_solve_triangular(Context& c, const Args& args) {
  return {solve(c, args.tensor(0), args.tensor(1), args.flag_or(3, true), args.flag(2), args.flag_or(4, false),
                Transpose::kNone)};
}

// (self, A, upper, transpose, unitriangular) -> solution, cloned_coefficient
Values triangular_solve(Context& c, const Args& args) {
  const Transpose transpose = args.flag_or(3, false) ? Transpose::kTranspose : Transpose::kNone;
  Value x = solve(c, args.tensor(1), args.tensor(0), true, args.flag_or(2, true), args.flag_or(4, false), transpose);
  return {x, with_batch(c, args.tensor(1), common_batch(args.tensor(0), args.tensor(1)))};
}

// A X = B with A = L L^H.
Value solve_factored(Context& c, Value b, Value l, bool upper) {
  if (upper) l = adjoint(c, l);
  Value y = solve(c, l, b, true, false, false, Transpose::kNone);
  return solve(c, l, y, true, false, false, is_complex(l.dtype()) ? Transpose::kAdjoint : Transpose::kTranspose);
}

Values cholesky_solve(Context& c, const Args& args) {
  return {solve_factored(c, args.tensor(0), args.tensor(1), args.flag(2))};
}

Values cholesky_inverse(Context& c, const Args& args) {
  const Value l = args.tensor(0);
  const Type index{DType::kI64, l.shape()};
  Value eye = c.b.convert(c.b.eq(c.b.iota(index, l.rank() - 2), c.b.iota(index, l.rank() - 1)), l.dtype());
  return {solve_factored(c, eye, triangle(c, l, !args.flag_or(1, false)), args.flag_or(1, false))};
}

}  // namespace

void add_fft_rows(Rows& rows);  // fft.cc

void add_linalg_rows(Rows& rows) {
  rows.push_back({"aten::linalg_cholesky_ex", cholesky_ex});
  rows.push_back({"aten::cholesky", cholesky});
  rows.push_back({"aten::linalg_solve_triangular", linalg_solve_triangular});
  rows.push_back({"aten::triangular_solve", triangular_solve});
  rows.push_back({"aten::_cholesky_solve_helper", cholesky_solve});
  rows.push_back({"aten::cholesky_inverse", cholesky_inverse});
  add_fft_rows(rows);
}

}  // namespace torch_tpu::ops
