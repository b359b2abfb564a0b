// Triangular systems and Cholesky factors. Singular values and general eigenvalues have no row: they run on the host
// through LAPACK (a counted fallback). Least squares of full rank are composed in aten/linear_algebra.cc.
#include "ops/linalg.h"

#include "ops/promote.h"

namespace torch_tpu::ops {

using hlo::Transpose;

Value swap_last(Context& c, Value x) {
  Dims order;
  for (int64_t i = 0; i < x.rank(); ++i) order.push_back(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return c.b.transpose(x, order);
}

Value adjoint(Context& c, Value x) { return conj(Expr(c.b, swap_last(c, x))); }

Value triangle(Context& c, Value x, bool lower) {
  const Type index{DType::kI64, x.shape()};
  Value row = c.b.iota(index, x.rank() - 2), column = c.b.iota(index, x.rank() - 1);
  return c.b.select(lower ? c.b.ge(row, column) : c.b.le(row, column), x, c.b.zeros_like(x));
}

Value hermitian(Context& c, Value x, bool lower) {
  Value half = triangle(c, x, lower);
  const Type index{DType::kI32, x.shape()};
  Value diagonal = c.b.eq(c.b.iota(index, x.rank() - 2), c.b.iota(index, x.rank() - 1));
  Value full = c.b.add(half, c.b.select(diagonal, c.b.zeros_like(x), adjoint(c, half)));
  if (!is_complex(x.dtype())) return full;
  Value im = c.b.imag(full);
  return c.b.complex(c.b.real(full), c.b.select(diagonal, c.b.zeros_like(im), im));
}

Value identity(Context& c, DType dtype, const Shape& batch, int64_t n) {
  Shape shape = batch;
  shape.insert(shape.end(), {n, n});
  const Type index{DType::kI32, shape};
  const auto rank = static_cast<int64_t>(shape.size());
  return c.b.convert(c.b.eq(c.b.iota(index, rank - 2), c.b.iota(index, rank - 1)), dtype);
}

Value rows_of(Context& c, Value x, int64_t from, int64_t to) { return c.b.slice_dim(x, x.rank() - 2, from, to); }
Value columns_of(Context& c, Value x, int64_t from, int64_t to) { return c.b.slice_dim(x, x.rank() - 1, from, to); }

Value as_one_batch(Context& c, Value x) {
  const int64_t m = x.dim(-2), n = x.dim(-1);
  return c.b.reshape(x, {m * n == 0 ? 0 : x.numel() / (m * n), m, n});
}

Value matrix_product(Context& c, Value x, Value y) {
  hlo::DotDims dims{{}, {}, {x.rank() - 1}, {y.rank() - 2}};
  for (int64_t i = 0; i + 2 < x.rank(); ++i) {
    dims.lhs_batch.push_back(i);
    dims.rhs_batch.push_back(i);
  }
  return c.b.dot(x, y, dims, x.dtype(), hlo::Precision::kHighest);
}

Value with_batch(Context& c, Value x, const Shape& batch) {
  Shape shape = batch;
  shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
  return c.b.broadcast(x, shape);
}

Shape common_batch(Value a, Value b) {
  return broadcast_shapes(
      {Shape(a.shape().begin(), a.shape().end() - 2), Shape(b.shape().begin(), b.shape().end() - 2)});
}

Value solve_triangular(Context& c, Value a, Value b, bool left, bool upper, bool unit, Transpose transpose) {
  const Shape batch = common_batch(a, b);
  a = with_batch(c, a, batch);
  b = with_batch(c, b, batch);
  if (b.numel() == 0) return b;
  return c.b.triangular_solve(a, b, left, !upper, unit, transpose);
}

namespace {

// The lower Cholesky factor, read from the given triangle of x.
Value factor(Context& c, Value x, bool upper) {
  if (x.numel() == 0) return x;
  return triangle(c, c.b.cholesky(upper ? adjoint(c, x) : x, /*lower=*/true), /*lower=*/true);
}

// LAPACK's info: 0, or the order of the first leading minor of a that is not positive. Engines fill the whole factor
// with NaN then, so that the order is found by elimination, and only then.
Value first_bad_minor(Context& c, Value a, bool upper, Value lower, const Type& type) {
  if (lower.numel() == 0) return c.b.zeros(type);
  Dims every;
  for (int64_t i = 0; i < lower.rank(); ++i) every.push_back(i);
  Value plain = is_complex(lower.dtype()) ? c.b.real(lower) : lower;
  Value failed = c.b.reduce(c.b.is_nan(plain), c.b.zeros({DType::kBool, {}}), every, "or");
  return c.b.if_else(
      failed,
      [&](hlo::Builder& b) {
        Value pivots = elimination_pivots(c, hermitian(c, a, !upper));
        const Type index{DType::kI32, pivots.shape()};
        Value number = b.add(b.iota(index, pivots.rank() - 1), b.ones(index));
        Value good = b.gt(pivots, b.zeros_like(pivots));
        Value first = b.reduce_min(b.select(good, b.max_value(index), number), {pivots.rank() - 1});
        Value none = b.eq(first, b.max_value(first.type()));
        return Values{b.convert(b.select(none, b.zeros_like(first), first), type.dtype)};
      },
      [&](hlo::Builder& b) { return Values{b.zeros(type)}; })[0];
}

// (self, upper, check_errors) -> L, info
Values cholesky_ex(Context& c, const Args& args) {
  if (args.flag_or(2, false))
    return {c.b.fail(ErrorCode::kNotImplemented, c.op + ": check_errors=True has no rule"), c.b.zeros(c.out(1))};
  const bool upper = args.flag_or(1, false);
  const Value a = args.tensor(0);
  Value lower = factor(c, a, upper);
  Value info = first_bad_minor(c, a, upper, lower, c.out(1));
  return {upper ? adjoint(c, lower) : lower, info};
}

// (self, B, upper, left, unitriangular)
Values linalg_solve_triangular(Context& c, const Args& args) {
  return {solve_triangular(c, args.tensor(0), args.tensor(1), args.flag_or(3, true), args.flag(2),
                           args.flag_or(4, false), Transpose::kNone)};
}

// (self, A, upper, transpose, unitriangular) -> solution, cloned_coefficient
Values triangular_solve(Context& c, const Args& args) {
  const Transpose transpose = args.flag_or(3, false) ? Transpose::kTranspose : Transpose::kNone;
  Value x = solve_triangular(c, args.tensor(1), args.tensor(0), true, args.flag_or(2, true), args.flag_or(4, false),
                             transpose);
  return {x, with_batch(c, args.tensor(1), common_batch(args.tensor(0), args.tensor(1)))};
}

// A X = B with A = L L^H.
Value solve_factored(Context& c, Value b, Value l, bool upper) {
  if (upper) l = adjoint(c, l);
  Value y = solve_triangular(c, l, b, true, false, false, Transpose::kNone);
  return solve_triangular(c, l, y, true, false, false,
                          is_complex(l.dtype()) ? Transpose::kAdjoint : Transpose::kTranspose);
}

Values cholesky_solve(Context& c, const Args& args) {
  return {solve_factored(c, args.tensor(0), args.tensor(1), args.flag(2))};
}

Values cholesky_inverse(Context& c, const Args& args) {
  const Value l = args.tensor(0);
  const Value eye = identity(c, l.dtype(), Shape(l.shape().begin(), l.shape().end() - 2), l.dim(-1));
  return {solve_factored(c, eye, triangle(c, l, !args.flag_or(1, false)), args.flag_or(1, false))};
}

}  // namespace

void add_linalg_rows(Rows& rows) {
  rows.push_back({"aten::linalg_cholesky_ex", cholesky_ex});
  rows.push_back({"aten::linalg_solve_triangular", linalg_solve_triangular});
  rows.push_back({"aten::triangular_solve", triangular_solve});
  rows.push_back({"aten::_cholesky_solve_helper", cholesky_solve});
  rows.push_back({"aten::cholesky_inverse", cholesky_inverse});
  add_lu_rows(rows);
  add_orthogonal_rows(rows);
  add_exponential_rows(rows);
  add_fft_rows(rows);
}

}  // namespace torch_tpu::ops
