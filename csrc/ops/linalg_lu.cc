// LU factors with partial pivoting, blocked: panels of columns are factored by a loop, what lies to their right is
// updated by one triangular solve and one product (Golub and Van Loan, Matrix Computations, 3.4). Everything is
// batched.
#include <algorithm>

#include "ops/linalg.h"

namespace torch_tpu::ops {
namespace {

using hlo::Transpose;

// Columns of a panel: wide enough that the products dominate, narrow enough that the loop's passes stay cheap.
constexpr int64_t kPanel = 64;

// A row permutation: row i of the permuted matrix is row order[i]. i32 [B, m].
struct Factors {
  Value lu;      // [B, m, n]
  Value order;   // [B, m]
  Value pivots;  // i32 [B, min(m, n)], counted from 1: LAPACK's successive exchanges
};

// Rows of x [B, m, n] in the given order.
Value take_rows(Context& c, Value x, Value order) {
  if (x.numel() == 0) return x;
  hlo::GatherDims dims;
  dims.offset_dims = {2};
  dims.collapsed_slice_dims = {1};
  dims.operand_batching_dims = {0};
  dims.start_indices_batching_dims = {0};
  dims.start_index_map = {1};
  dims.index_vector_dim = 2;
  dims.slice_sizes = {1, 1, x.dim(2)};
  return c.b.gather(x, c.b.unsqueeze(order, 2), dims);
}

Value take(Context& c, Value order, Value by) { return c.b.squeeze(take_rows(c, c.b.unsqueeze(order, 2), by), 2); }

Value counting(Context& c, int64_t batch, int64_t m) { return c.b.iota({DType::kI32, {batch, m}}, 1); }

// [B, m] -> [B, m, n], and [B, n] -> [B, m, n].
Value down(Context& c, Value x, int64_t n) { return c.b.broadcast_in_dim(x, {x.dim(0), x.dim(1), n}, {0, 1}); }
Value across(Context& c, Value x, int64_t m) { return c.b.broadcast_in_dim(x, {x.dim(0), m, x.dim(1)}, {0, 2}); }
Value per_matrix(Context& c, Value x, const Shape& shape) { return c.b.broadcast_in_dim(x, shape, {0}); }

// LAPACK's measure of a pivot: |re| + |im|.
Value magnitude(Context& c, Value x) {
  return is_complex(x.dtype()) ? c.b.add(c.b.abs(c.b.real(x)), c.b.abs(c.b.imag(x))) : c.b.abs(x);
}

// The row of the largest entry of `column` at or below row k, [B]; k itself where the column holds a NaN.
Value pivot_row(Context& c, Value column, Value k) {
  Value row = counting(c, column.dim(0), column.dim(1));
  Value at = c.b.broadcast(k, row.shape());
  Value size = magnitude(c, column);
  size = c.b.select(c.b.ge(row, at), size, c.b.full_like(size, -1));
  Value largest = per_matrix(c, c.b.reduce_max(size, {1}), row.shape());
  Value none = c.b.max_value(row.type());
  Value first = c.b.reduce_min(c.b.select(c.b.eq(size, largest), row, none), {1});
  return c.b.select(c.b.eq(first, c.b.max_value(first.type())), c.b.broadcast(k, first.shape()), first);
}

// x with entries k and p[b] of dim 1 exchanged.
Value exchanged(Context& c, Value x, Value k, Value p) {
  const Type index{DType::kI32, x.shape()};
  Value row = c.b.iota(index, 1);
  Value at_k = c.b.eq(row, c.b.broadcast(k, x.shape())), at_p = c.b.eq(row, per_matrix(c, p, x.shape()));
  auto row_where = [&](Value mask) {
    Dims kept{0};
    for (int64_t i = 2; i < x.rank(); ++i) kept.push_back(i);
    return c.b.broadcast_in_dim(c.b.reduce_sum(c.b.select(mask, x, c.b.zeros_like(x)), {1}), x.shape(), kept);
  };
  return c.b.select(at_k, row_where(at_p), c.b.select(at_p, row_where(at_k), x));
}

// One step of elimination: the column below the diagonal becomes factors, what is right of it loses its part of row k.
Value eliminated(Context& c, Value a, Value k) {
  const int64_t batch = a.dim(0), m = a.dim(1), n = a.dim(2);
  Value zero = c.b.scalar_int(DType::kI32, 0);
  Value column = c.b.squeeze(c.b.dynamic_slice(a, {zero, zero, k}, {batch, m, 1}), 2);
  Value top = c.b.squeeze(c.b.dynamic_slice(a, {zero, k, zero}, {batch, 1, n}), 1);
  Value pivot = c.b.squeeze(c.b.dynamic_slice(top, {zero, k}, {batch, 1}), 1);
  // A zero pivot has only zeros below: dividing by one leaves them.
  pivot = c.b.select(c.b.eq(pivot, c.b.zeros_like(pivot)), c.b.ones_like(pivot), pivot);
  Value factors = c.b.div(column, per_matrix(c, pivot, column.shape()));
  const Type index{DType::kI32, a.shape()};
  Value at = c.b.broadcast(k, a.shape());
  Value below = c.b.gt(c.b.iota(index, 1), at), col = c.b.iota(index, 2);
  Value rest = c.b.sub(a, c.b.mul(down(c, factors, n), across(c, top, m)));
  Value changed = c.b.select(c.b.gt(col, at), rest, c.b.select(c.b.eq(col, at), down(c, factors, n), a));
  return c.b.select(below, changed, a);
}

Factors factor_panel(Context& c, Value a, bool pivot) {
  const int64_t batch = a.dim(0), m = a.dim(1), steps = std::min(m, a.dim(2));
  Value end = c.b.scalar_int(DType::kI32, steps);
  const Type pivots{DType::kI32, {batch, steps}};
  Values state = c.b.while_loop(
      {c.b.scalar_int(DType::kI32, 0), a, counting(c, batch, m), c.b.zeros(pivots)},
      [&](hlo::Builder& b, const Values& s) { return Values{b.lt(s[0], end)}; },
      [&](hlo::Builder& b, const Values& s) {
        Value k = s[0], matrix = s[1], order = s[2];
        Value p = b.broadcast(k, {batch});
        if (pivot) {
          Value zero = b.scalar_int(DType::kI32, 0);
          p = pivot_row(c, b.squeeze(b.dynamic_slice(matrix, {zero, zero, k}, {batch, m, 1}), 2), k);
          matrix = exchanged(c, matrix, k, p);
          order = exchanged(c, order, k, p);
        }
        Value here = b.eq(b.iota(pivots, 1), b.broadcast(k, pivots.shape));
        Value found = b.select(here, per_matrix(c, b.add(p, b.ones_like(p)), pivots.shape), s[3]);
        return Values{b.add(k, b.ones_like(k)), eliminated(c, matrix, k), order, found};
      });
  return {state[1], state[2], state[3]};
}

// x [B, m, n] = P L U.
Factors factor(Context& c, Value x, bool pivot) {
  const int64_t batch = x.dim(0), m = x.dim(1), n = x.dim(2), steps = std::min(m, n);
  Factors f{x, counting(c, batch, m), {}};
  Values pivots;
  for (int64_t k = 0; k < steps; k += kPanel) {
    const int64_t end = std::min(k + kPanel, steps);
    Value lower = rows_of(c, f.lu, k, m);
    Factors panel = factor_panel(c, columns_of(c, lower, k, end), pivot);
    Values done{take_rows(c, columns_of(c, lower, 0, k), panel.order), panel.lu};
    if (end < n) {
      Value right = take_rows(c, columns_of(c, lower, end, n), panel.order);
      Value top = rows_of(c, right, 0, end - k);
      top = c.b.triangular_solve(rows_of(c, panel.lu, 0, end - k), top, /*left=*/true, /*lower=*/true, /*unit=*/true,
                                 Transpose::kNone);
      Value rest = rows_of(c, right, end - k, m - k);
      if (end < m) rest = c.b.sub(rest, matrix_product(c, rows_of(c, panel.lu, end - k, m - k), top));
      done.push_back(c.b.concatenate({top, rest}, 1));
    }
    f.lu = c.b.concatenate({rows_of(c, f.lu, 0, k), c.b.concatenate(done, 2)}, 1);
    Value tail = take(c, c.b.slice_dim(f.order, 1, k, m), panel.order);
    f.order = c.b.concatenate({c.b.slice_dim(f.order, 1, 0, k), tail}, 1);
    pivots.push_back(c.b.add(panel.pivots, c.b.constant_int(panel.pivots.type(), k)));
  }
  f.pivots = c.b.concatenate(pivots, 1);
  return f;
}

// LAPACK's info: the number of the first pivot that is exactly zero, or 0. [B]
Value first_zero_pivot(Context& c, Value lu) {
  const Type index{DType::kI32, lu.shape()};
  Value row = c.b.iota(index, 1);
  Value zero = c.b.logical_and(c.b.eq(row, c.b.iota(index, 2)), c.b.eq(lu, c.b.zeros_like(lu)));
  Value number = c.b.select(zero, c.b.add(row, c.b.ones(index)), c.b.max_value(index));
  Value first = c.b.reduce_min(number, {1, 2});
  return c.b.select(c.b.eq(first, c.b.max_value(first.type())), c.b.zeros_like(first), first);
}

Value stored(Context& c, size_t i, Value x) { return c.b.reshape(c.b.convert(x, c.out(i).dtype), c.out(i).shape); }

Values zeros(Context& c) {
  Values results;
  for (const Type& type : c.outs) results.push_back(c.b.zeros(type));
  return results;
}

// check_errors raises from info before the call returns: the host's kernel does that. PyTorch's own functions pass
// false and look at info themselves.
bool refuses(Context& c, const Args& args, size_t check_errors) {
  if (!args.flag_or(check_errors, false)) return false;
  c.b.fail(ErrorCode::kNotImplemented, c.op + ": check_errors=True has no rule");
  return true;
}

// (A, pivot, check_errors) -> LU, pivots, info
Values lu_factor(Context& c, const Args& args) {
  if (refuses(c, args, 2)) return zeros(c);
  if (args.tensor(0).numel() == 0) return zeros(c);
  Factors f = factor(c, as_one_batch(c, args.tensor(0)), args.flag_or(1, true));
  return {stored(c, 0, f.lu), stored(c, 1, f.pivots), stored(c, 2, first_zero_pivot(c, f.lu))};
}

// P [B, m, m] with P (L U) = A: column i has its one in row order[i].
Value permutation(Context& c, Value order, DType dtype) {
  const int64_t m = order.dim(1);
  Value row = c.b.iota({DType::kI32, {order.dim(0), m, m}}, 1);
  return c.b.convert(c.b.eq(row, across(c, order, m)), dtype);
}

Value lower_factor(Context& c, Value lu) {
  const int64_t m = lu.dim(1), k = std::min(m, lu.dim(2));
  Value l = columns_of(c, lu, 0, k);
  const Type index{DType::kI32, l.shape()};
  Value row = c.b.iota(index, 1), column = c.b.iota(index, 2);
  l = c.b.select(c.b.gt(row, column), l, c.b.zeros_like(l));
  return c.b.select(c.b.eq(row, column), c.b.ones_like(l), l);
}

Value upper_factor(Context& c, Value lu) {
  return triangle(c, rows_of(c, lu, 0, std::min(lu.dim(1), lu.dim(2))), /*lower=*/false);
}

// (A, pivot) -> P, L, U
Values lu(Context& c, const Args& args) {
  const bool pivot = args.flag_or(1, true);
  if (args.tensor(0).numel() == 0) {
    Values results = zeros(c);
    const Shape& p = c.out(0).shape;
    if (element_count(p) > 0) results[0] = identity(c, c.out(0).dtype, Shape(p.begin(), p.end() - 2), p.back());
    return results;
  }
  Factors f = factor(c, as_one_batch(c, args.tensor(0)), pivot);
  Value p = pivot ? stored(c, 0, permutation(c, f.order, c.out(0).dtype)) : c.b.zeros(c.out(0));
  return {p, stored(c, 1, lower_factor(c, f.lu)), stored(c, 2, upper_factor(c, f.lu))};
}

// The row order [B, m] that successive exchanges (counted from 1) amount to.
Value order_of(Context& c, Value pivots, int64_t m) {
  const int64_t batch = pivots.dim(0);
  Value end = c.b.scalar_int(DType::kI32, pivots.dim(1)), zero = c.b.scalar_int(DType::kI32, 0);
  return c.b.while_loop(
      {zero, counting(c, batch, m)}, [&](hlo::Builder& b, const Values& s) { return Values{b.lt(s[0], end)}; },
      [&](hlo::Builder& b, const Values& s) {
        Value p = b.squeeze(b.dynamic_slice(pivots, {zero, s[0]}, {batch, 1}), 1);
        return Values{b.add(s[0], b.ones_like(s[0])), exchanged(c, s[1], s[0], b.sub(p, b.ones_like(p)))};
      })[1];
}

// (LU_data, LU_pivots, unpack_data, unpack_pivots) -> P, L, U
Values lu_unpack(Context& c, const Args& args) {
  Values results = zeros(c);
  const Value data = args.tensor(0);
  if (args.flag_or(2, true) && data.numel() > 0) {
    results[1] = stored(c, 1, lower_factor(c, as_one_batch(c, data)));
    results[2] = stored(c, 2, upper_factor(c, as_one_batch(c, data)));
  }
  if (args.flag_or(3, true) && element_count(c.out(0).shape) > 0) {
    const int64_t m = data.dim(-2), k = args.tensor(1).dim(-1);
    const int64_t batch = element_count(c.out(0).shape) / (m * m);
    Value order = order_of(c, c.b.reshape(c.b.convert(args.tensor(1), DType::kI32), {batch, k}), m);
    results[0] = stored(c, 0, permutation(c, order, c.out(0).dtype));
  }
  return results;
}

// A X = B (or A^H X = B) for A = P L U, everything [B, ., .].
Value solve_factored(Context& c, Value lu, Value order, Value b, bool adjoint) {
  if (!adjoint) {
    Value y = solve_triangular(c, lu, take_rows(c, b, order), true, false, true, Transpose::kNone);
    return solve_triangular(c, lu, y, true, true, false, Transpose::kNone);
  }
  const Transpose turned = is_complex(lu.dtype()) ? Transpose::kAdjoint : Transpose::kTranspose;
  Value y = solve_triangular(c, lu, b, true, true, false, turned);
  Value x = solve_triangular(c, lu, y, true, false, true, turned);
  // Row order[i] of the solution is row i of x.
  const int64_t m = order.dim(1);
  const Type square{DType::kI32, {order.dim(0), m, m}};
  Value match = c.b.eq(c.b.iota(square, 1), across(c, order, m));
  Value inverse = c.b.reduce_max(c.b.select(match, c.b.iota(square, 2), c.b.zeros(square)), {2});
  return take_rows(c, x, inverse);
}

// (LU, pivots, B, left, adjoint)
Values lu_solve(Context& c, const Args& args) {
  Value lu = args.tensor(0), pivots = c.b.convert(args.tensor(1), DType::kI32), b = args.tensor(2);
  if (element_count(c.out().shape) == 0) return {c.b.zeros(c.out())};
  const bool left = args.flag_or(3, true), turned = args.flag_or(4, false);
  const Shape batch = common_batch(lu, b);
  const int64_t n = lu.dim(-1);
  Shape wide = batch;
  wide.push_back(n);
  pivots = c.b.reshape(c.b.broadcast(pivots, wide), {element_count(batch), n});
  lu = as_one_batch(c, with_batch(c, lu, batch));
  b = as_one_batch(c, with_batch(c, b, batch));
  Value order = order_of(c, pivots, n);
  // X A = B is A^H X^H = B^H.
  if (left) return {stored(c, 0, solve_factored(c, lu, order, b, turned))};
  return {stored(c, 0, adjoint(c, solve_factored(c, lu, order, adjoint(c, b), !turned)))};
}

// (A, check_errors) -> inverse, info
Values inverse(Context& c, const Args& args) {
  if (refuses(c, args, 1)) return zeros(c);
  if (args.tensor(0).numel() == 0) return zeros(c);
  Value a = as_one_batch(c, args.tensor(0));
  Factors f = factor(c, a, true);
  Value eye = identity(c, a.dtype(), {a.dim(0)}, a.dim(1));
  return {stored(c, 0, solve_factored(c, f.lu, f.order, eye, false)), stored(c, 1, first_zero_pivot(c, f.lu))};
}

// (A, B, left, check_errors) -> result, LU, pivots, info. B is a vector (or a batch of them) when it has the shape of A
// without its last dim.
Values solve(Context& c, const Args& args) {
  if (refuses(c, args, 3)) return zeros(c);
  Value a = args.tensor(0), b = args.tensor(1);
  if (a.numel() == 0) return zeros(c);
  Factors f = factor(c, as_one_batch(c, a), true);
  Values results{c.b.zeros(c.out(0)), stored(c, 1, f.lu), stored(c, 2, f.pivots),
                 stored(c, 3, first_zero_pivot(c, f.lu))};
  if (element_count(c.out(0).shape) == 0) return results;
  const bool vector =
      b.rank() == 1 || (b.rank() + 1 == a.rank() && std::equal(b.shape().begin(), b.shape().end(), a.shape().begin()));
  if (vector) b = c.b.unsqueeze(b, b.rank());
  const Shape batch = common_batch(a, b);
  auto spread = [&](Value x) {
    Shape shape(a.shape().begin(), a.shape().end() - 2);
    shape.insert(shape.end(), {x.dim(1), x.dim(2)});
    return as_one_batch(c, with_batch(c, c.b.reshape(x, shape), batch));
  };
  Value order = c.b.squeeze(spread(c.b.unsqueeze(f.order, 2)), 2);
  Value lu = spread(f.lu);
  b = as_one_batch(c, with_batch(c, b, batch));
  results[0] = args.flag_or(2, true) ? stored(c, 0, solve_factored(c, lu, order, b, false))
                                     : stored(c, 0, adjoint(c, solve_factored(c, lu, order, adjoint(c, b), true)));
  return results;
}

}  // namespace

Value elimination_pivots(Context& c, Value a) {
  Value lu = factor_panel(c, as_one_batch(c, a), /*pivot=*/false).lu;
  const Type index{DType::kI32, lu.shape()};
  Value diagonal = c.b.eq(c.b.iota(index, 1), c.b.iota(index, 2));
  Value plain = is_complex(lu.dtype()) ? c.b.real(lu) : lu;
  Value pivots = c.b.reduce_sum(c.b.select(diagonal, plain, c.b.zeros_like(plain)), {2});
  return c.b.reshape(pivots, Shape(a.shape().begin(), a.shape().end() - 1));
}

void add_lu_rows(Rows& rows) {
  rows.push_back({"aten::linalg_lu_factor_ex", lu_factor});
  rows.push_back({"aten::linalg_lu", lu});
  rows.push_back({"aten::lu_unpack", lu_unpack});
  rows.push_back({"aten::linalg_lu_solve", lu_solve});
  rows.push_back({"aten::linalg_inv_ex", inverse});
  rows.push_back({"aten::_linalg_solve_ex", solve});
}

}  // namespace torch_tpu::ops
