// Matrix products. f16 and bf16 accumulate in f32 and are rounded once.
#include "ops/expr.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

using hlo::DotDims;

const DotDims kMatrix{{}, {}, {1}, {0}};
const DotDims kBatched{{0}, {0}, {2}, {1}};
const DotDims kMatrixVector{{}, {}, {1}, {0}};
const DotDims kVectors{{}, {}, {0}, {0}};
// Sums over the batch: the batch is contracted together with the inner dimension.
const DotDims kBatchSum{{}, {}, {0, 2}, {0, 1}};

// The dtype a product is accumulated in. Bool products are logical: computed in i32, nonzero is true.
DType accumulator(DType dtype) { return is_bool(dtype) ? DType::kI32 : compute_dtype(dtype); }

// x . y in the accumulator's dtype.
Expr product(Context& c, Value x, Value y, const DotDims& dims) {
  const DType acc = accumulator(x.dtype());
  if (is_bool(x.dtype()) || is_float8(x.dtype())) {
    x = c.b.convert(x, acc);
    y = c.b.convert(y, acc);
  }
  if (is_integer(x.dtype()) || is_bool(x.dtype())) return {c.b, c.b.dot(x, y, dims, acc, hlo::Precision::kDefault)};
  return {c.b, c.b.dot(x, y, dims, acc, c.precision)};
}

Rule plain(const DotDims& dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Value x = args.tensor(0), y = args.tensor(1);
    if (x.dtype() != y.dtype())
      return {c.fail("expected both operands to have the same dtype, got " + std::string(torch_name(x.dtype())) +
                     " and " + std::string(torch_name(y.dtype())))};
    return {product(c, x, y, dims).to(c.out().dtype)};
  };
}

// beta * self + alpha * (x . y). beta == 0 leaves self out, NaN and all.
Rule scaled_sum(const DotDims& dims) {
  return [dims](Context& c, const Args& args) -> Values {
    Expr sum = product(c, args.tensor(1), args.tensor(2), dims);
    const DType acc = sum.dtype();
    const auto alpha = args.scalar_constant(4);
    const auto beta = args.scalar_constant(3);
    if (alpha != 1.0) sum = sum * sum.with(as(c, args, 4, acc, sum.value().shape()));
    if (beta != 0.0) {
      Expr self = sum.with(as(c, args.tensor(0), acc, sum.value().shape()));
      if (beta != 1.0) self = self * sum.with(as(c, args, 3, acc, sum.value().shape()));
      sum = self + sum;
    }
    return {sum.to(c.out().dtype)};
  };
}

Row scaled(std::string name, const DotDims& dims) {
  return Row{std::move(name), scaled_sum(dims)}.specialising(3, {0, 1}).specialising(4, {1});
}

// vdot conjugates its first operand.
Values vdot(Context& c, const Args& args) {
  Value x = args.tensor(0);
  if (is_complex(x.dtype())) x = c.b.complex(c.b.real(x), c.b.neg(c.b.imag(x)));
  return {product(c, x, args.tensor(1), kVectors).to(c.out().dtype)};
}

// addmm followed by relu or gelu: (self, mat1, mat2, beta, alpha, use_gelu).
Values addmm_activation(Context& c, const Args& args) {
  Values sum = scaled_sum(kMatrix)(c, args);
  Expr x = Expr(c.b, sum[0]).to(compute_dtype(c.out().dtype));
  if (args.flag_or(5, false)) {
    // The tanh approximation, as PyTorch's kernel.
    Expr inner = (x + x * x * x * 0.044715) * 0.7978845608028654;
    return {(x * 0.5 * (tanh(inner) + 1.0)).to(c.out().dtype)};
  }
  return {max(x, 0.0).to(c.out().dtype)};
}

}  // namespace

void add_matmul_rows(Rows& rows) {
  rows.push_back({"aten::mm", plain(kMatrix)});
  rows.push_back({"aten::bmm", plain(kBatched)});
  rows.push_back({"aten::mv", plain(kMatrixVector)});
  rows.push_back({"aten::dot", plain(kVectors)});
  rows.push_back({"aten::vdot", vdot});
  rows.push_back({"aten::_int_mm", plain(kMatrix)});
  rows.push_back(scaled("aten::addmm", kMatrix));
  rows.push_back(scaled("aten::addmv", kMatrixVector));
  rows.push_back(scaled("aten::baddbmm", kBatched));
  rows.push_back(scaled("aten::addbmm", kBatchSum));
  rows.push_back(Row{"aten::_addmm_activation", addmm_activation}.specialising(3, {0, 1}).specialising(4, {1}));
}

}  // namespace torch_tpu::ops
