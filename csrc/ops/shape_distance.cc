// Pairwise p-norm distances: cdist and pdist with their backwards.
#include <cmath>

#include "ops/indexing.h"
#include "ops/promote.h"
#include "ops/shape.h"

namespace torch_tpu::ops {
namespace {

// Above this many differences the Euclidean distance goes through a matrix product.
constexpr int64_t kDirectDifferences = int64_t{1} << 24;

// Sum over the last dimension of |difference|^p, to the power 1/p.
Value norm_last(Builder& b, Value difference, double p) {
  Dims last = {difference.rank() - 1};
  Value magnitude = b.abs(difference);
  if (p == 0) return b.reduce_sum(b.convert(b.ne(difference, b.zeros(difference.type())), difference.dtype()), last);
  if (p == 1) return b.reduce_sum(magnitude, last);
  if (p == 2) return b.sqrt(b.reduce_sum(b.mul(difference, difference), last));
  if (std::isinf(p)) return b.reduce_max(magnitude, last);
  Value sum = b.reduce_sum(b.pow(magnitude, b.full_like(magnitude, p)), last);
  return b.pow(sum, b.full_like(sum, 1 / p));
}

// x [.., P, M] and y [.., R, M], equal batches, to x - y as [.., P, R, M].
Value differences(Builder& b, Value x, Value y) {
  int64_t rank = x.rank();
  Shape shape(x.shape().begin(), x.shape().end() - 1);
  shape.push_back(y.dim(-2));
  shape.push_back(x.dim(-1));
  Dims xs, ys;
  for (int64_t i = 0; i < rank - 2; ++i) xs.push_back(i);
  ys = xs;
  xs.push_back(rank - 2);
  xs.push_back(rank);
  ys.push_back(rank - 1);
  ys.push_back(rank);
  return b.sub(b.broadcast_in_dim(x, shape, xs), b.broadcast_in_dim(y, shape, ys));
}

// |x|^2 + |y|^2 - 2 x.y
Value euclidean_by_product(Context& c, Value x, Value y) {
  Builder& b = c.b;
  int64_t rank = x.rank();
  hlo::DotDims dims;
  for (int64_t i = 0; i < rank - 2; ++i) dims.lhs_batch.push_back(i);
  dims.rhs_batch = dims.lhs_batch;
  dims.lhs_contract = dims.rhs_contract = {rank - 1};
  Value product = b.dot(x, y, dims, x.dtype(), c.precision);
  Value xx = b.reduce_sum(b.mul(x, x), {rank - 1}), yy = b.reduce_sum(b.mul(y, y), {rank - 1});
  Dims rows, columns;
  for (int64_t i = 0; i < rank - 1; ++i) rows.push_back(i);
  columns = rows;
  columns.back() = rank - 1;
  Value sum = b.add(b.broadcast_in_dim(xx, product.shape(), rows), b.broadcast_in_dim(yy, product.shape(), columns));
  Value square = b.sub(sum, b.mul(product, b.full_like(product, 2)));
  return b.sqrt(b.max(square, b.zeros(square.type())));
}

// Shape of x with its batch dimensions replaced by those of `batch`.
Shape with_batch(Value x, const Shape& batch) {
  Shape shape(batch.begin(), batch.end() - 2);
  shape.push_back(x.dim(-2));
  shape.push_back(x.dim(-1));
  return shape;
}

// _cdist_forward(x1, x2, p, compute_mode)
Values cdist_forward(Context& c, const Args& args) {
  Builder& b = c.b;
  const Type& out = c.out();
  Value x = args.tensor(0), y = args.tensor(1);
  if (element_count(out.shape) == 0 || x.dim(-1) == 0) return {b.zeros(out)};
  DType dtype = compute_dtype(out.dtype);
  x = as(c, x, dtype, with_batch(x, out.shape));
  y = as(c, y, dtype, with_batch(y, out.shape));
  double p = args.number(2);
  bool product = p == 2 && args.integer_or(3, 0) != 2 && element_count(out.shape) * x.dim(-1) > kDirectDifferences;
  Value result = product ? euclidean_by_product(c, x, y) : norm_last(b, differences(b, x, y), p);
  return {b.convert(result, out.dtype)};
}

// d distance / d difference, times grad; grad and distance are broadcast to difference's shape.
Value distance_gradient(Builder& b, Value difference, Value distance, Value grad, double p) {
  Value zero = b.zeros(difference.type());
  Value sign = b.unary("sign", difference), magnitude = b.abs(difference);
  if (p == 0) return zero;
  if (p == 1) return b.mul(grad, sign);
  if (std::isinf(p)) return b.select(b.eq(magnitude, distance), b.mul(grad, sign), zero);
  Value flat = b.eq(distance, zero);
  if (p == 2) return b.select(flat, zero, b.div(b.mul(grad, difference), distance));
  if (p < 1) flat = b.logical_or(flat, b.eq(difference, zero));
  Value power = b.full_like(difference, p - 1);
  Value slope = b.mul(sign, b.div(b.pow(magnitude, power), b.pow(distance, power)));
  return b.select(flat, zero, b.mul(grad, slope));
}

// Sum over y's rows of the gradient for x; grad and distance are [.., P, R].
Value gradient_for_x(Builder& b, Value x, Value y, Value distance, Value grad, double p) {
  Value difference = differences(b, x, y);
  Dims leading;
  for (int64_t i = 0; i < difference.rank() - 1; ++i) leading.push_back(i);
  Value g = b.broadcast_in_dim(grad, difference.shape(), leading);
  Value d = b.broadcast_in_dim(distance, difference.shape(), leading);
  return b.reduce_sum(distance_gradient(b, difference, d, g, p), {difference.rank() - 2});
}

// _cdist_backward(grad, x1, x2, p, cdist)
Values cdist_backward(Context& c, const Args& args) {
  Builder& b = c.b;
  const Type& out = c.out();
  Value x = args.tensor(1), y = args.tensor(2), distance = args.tensor(4);
  if (element_count(out.shape) == 0 || distance.numel() == 0) return {b.zeros(out)};
  DType dtype = compute_dtype(out.dtype);
  x = as(c, x, dtype, with_batch(x, distance.shape()));
  y = as(c, y, dtype, with_batch(y, distance.shape()));
  Value grad = as(c, args.tensor(0), dtype, distance.shape());
  Value result = gradient_for_x(b, x, y, b.convert(distance, dtype), grad, args.number(3));
  return {b.reshape(b.convert(result, out.dtype), out.shape)};
}

// Row i and column j > i of the k-th pair of n points, in row-major order.
std::pair<Value, Value> pair_of(Builder& b, int64_t n, int64_t pairs) {
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < n; ++i) starts.push_back(i * n - i * (i + 1) / 2);
  Value k = b.iota({DType::kI64, {pairs}}, 0), one = b.ones(k.type());
  // The last row has no pair: only the starts of rows 0 .. n-2 are searched.
  starts.pop_back();
  Value start = b.vector_int(DType::kI64, starts);
  Value i = b.sub(search_sorted(b, start, k, /*right=*/true), one);
  Value j = b.add(b.sub(k, take_flat(b, start, i)), b.add(i, one));
  return {i, j};
}

// _pdist_forward(self, p): distances of the pairs i < j.
Values pdist_forward(Context& c, const Args& args) {
  Builder& b = c.b;
  Value x = args.tensor(0);
  int64_t pairs = element_count(c.out().shape);
  if (pairs == 0 || x.numel() == 0) return {b.zeros(c.out())};
  auto [i, j] = pair_of(b, x.dim(0), pairs);
  x = b.convert(x, compute_dtype(x.dtype()));
  Value difference = b.sub(take_dim(b, x, 0, i), take_dim(b, x, 0, j));
  return {b.convert(norm_last(b, difference, args.number_or(1, 2.0)), c.out().dtype)};
}

// _pdist_backward(grad, self, p, pdist): pairs are spread to the full symmetric matrix.
Values pdist_backward(Context& c, const Args& args) {
  Builder& b = c.b;
  Value x = args.tensor(1), distance = args.tensor(3);
  int64_t n = x.dim(0);
  if (distance.numel() == 0 || x.numel() == 0) return {b.zeros(c.out())};
  DType dtype = compute_dtype(x.dtype());
  x = b.convert(x, dtype);
  Type index{DType::kI64, {n, n}};
  Value row = b.iota(index, 0), column = b.iota(index, 1);
  Value i = b.min(row, column), j = b.max(row, column), one = b.ones(index);
  // start(i) + j - i - 1 with start(i) = i n - i (i + 1) / 2
  Value start = b.sub(b.mul(i, b.constant_int(index, n)), b.div(b.mul(i, b.add(i, one)), b.constant_int(index, 2)));
  Value k = b.sub(b.add(start, b.sub(j, i)), one);
  k = b.clamp(b.scalar_int(DType::kI64, 0), k, b.scalar_int(DType::kI64, distance.numel() - 1));
  Value self_pair = b.eq(row, column), zero = b.zeros({dtype, {n, n}});
  auto spread = [&](Value v) { return b.select(self_pair, zero, take_flat(b, b.convert(v, dtype), k)); };
  Value result = gradient_for_x(b, x, x, spread(distance), spread(args.tensor(0)), args.number(2));
  return {b.convert(result, c.out().dtype)};
}

}  // namespace

void add_distance_rows(Rows& rows) {
  rows.push_back(Row{"aten::_cdist_forward", cdist_forward});
  rows.push_back(Row{"aten::_cdist_backward", cdist_backward});
  rows.push_back(Row{"aten::_pdist_forward", pdist_forward});
  rows.push_back(Row{"aten::_pdist_backward", pdist_backward});
}

}  // namespace torch_tpu::ops
