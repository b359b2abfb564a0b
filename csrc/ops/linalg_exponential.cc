// The matrix exponential by scaling and squaring: exp(A) = exp(A / 2^s)^(2^s), with s for each matrix of the batch such
// that the 1-norm of A / 2^s is at most 1, or 3 in single precision: every squaring doubles the error. There the Taylor
// polynomial of degree 20 is exact to 1 / 21! = 2e-20, and to 3^21 / 21! = 2e-10.
// Higham, "The scaling and squaring method for the matrix exponential revisited", 2005.
#include "ops/linalg.h"

namespace torch_tpu::ops {
namespace {

// sum of x^k / k! for k <= 20, in powers of x^5 (Paterson and Stockmeyer): seven products.
Value exponential_polynomial(Context& c, Value x) {
  constexpr int kBlock = 5, kBlocks = 4;
  std::vector<double> coefficients{1};
  for (int k = 1; k <= kBlock * kBlocks; ++k) coefficients.push_back(coefficients.back() / k);
  std::vector<Expr> powers{{c.b, identity(c, x.dtype(), {x.dim(0)}, x.dim(-1))}, {c.b, x}};
  for (int k = 2; k <= kBlock; ++k) powers.emplace_back(c.b, matrix_product(c, powers.back(), x));
  Expr sum = powers[kBlock] * coefficients.back();
  for (int block = kBlocks - 1; block >= 0; --block) {
    if (block < kBlocks - 1) sum = sum.with(matrix_product(c, sum, powers[kBlock]));
    for (int k = 0; k < kBlock; ++k) sum = sum + powers[k] * coefficients[block * kBlock + k];
  }
  return sum;
}

// 2^-s, exactly, for integers s: the exponent's bits.
Value inverse_power_of_two(Context& c, Value s, DType dtype) {
  const bool single = dtype == DType::kF32;
  Expr e = Expr(c.b, s).to(single ? DType::kI32 : DType::kI64);
  Expr bits = call("shift_left", (single ? 127.0 : 1023.0) - e, e.like(single ? 23 : 52));
  return c.b.bitcast(bits, {dtype, s.shape()});
}

// (self)
Values matrix_exp(Context& c, const Args& args) {
  const DType dtype = compute_dtype(args.tensor(0).dtype());
  if (args.tensor(0).numel() == 0) return {args.tensor(0)};
  Value a = as_one_batch(c, c.b.convert(args.tensor(0), dtype));
  Expr norm(c.b, c.b.reduce_max(c.b.reduce_sum(abs(Expr(c.b, a)), {1}), {1}));
  // Short of the exponents that floats have: such a matrix overflows whatever s is. NaN: as 0.
  const bool single = norm.dtype() == DType::kF32;
  const double most = single ? 120 : 1000, reach = single ? 3 : 1;
  Expr s = min(max(ceil(log(norm * (1 / reach)) * (1 / std::log(2.0))), 0.0), most);
  s = select(is_nan(norm), 0.0, s).to(DType::kI32);
  auto for_each_matrix = [&](Value v) { return c.b.broadcast_in_dim(v, a.shape(), {0}); };
  Value scale = c.b.convert(for_each_matrix(inverse_power_of_two(c, s, norm.dtype())), dtype);
  Value root = exponential_polynomial(c, c.b.mul(a, scale));
  Value squarings = for_each_matrix(s), most_squarings = c.b.reduce_max(s, {0});
  Values result = c.b.while_loop(
      {c.b.scalar_int(DType::kI32, 0), root},
      [&](Builder& b, const Values& v) -> Values { return {b.lt(v[0], most_squarings)}; },
      [&](Builder& b, const Values& v) -> Values {
        Value more = b.lt(b.broadcast(v[0], squarings.shape()), squarings);
        return {b.add(v[0], b.ones_like(v[0])), b.select(more, matrix_product(c, v[1], v[1]), v[1])};
      });
  return {c.b.convert(c.b.reshape(result[1], args.tensor(0).shape()), c.out().dtype)};
}

}  // namespace

void add_exponential_rows(Rows& rows) { rows.push_back({"aten::linalg_matrix_exp", matrix_exp}); }

}  // namespace torch_tpu::ops
