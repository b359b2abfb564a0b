// Softmax families, forward and backward, computed in f32 for f16 and bf16.
#include "ops/expr.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

struct Along {
  int64_t dim;
  Shape shape;  // the operand's
  Expr sum(Expr x) const { return restore(x.with(x.b().reduce_sum(x, {dim}))); }
  Expr maximum(Expr x) const { return restore(x.with(x.b().reduce_max(x, {dim}))); }
  Expr restore(Expr reduced) const {
    Dims dims;
    for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i)
      if (i != dim) dims.push_back(i);
    return reduced.with(reduced.b().broadcast_in_dim(reduced, shape, dims));
  }
};

// A 0-d operand is a softmax over one element: computed as a vector of one.
struct Operand {
  Expr x;
  Along along;
};
Operand operand(Context& c, Value v, int64_t dim) {
  const DType dtype = compute_dtype(v.dtype());
  v = c.b.convert(v, dtype);
  if (v.rank() == 0) v = c.b.reshape(v, {1});
  return {{c.b, v}, {wrap_dim(dim, v.rank()), v.shape()}};
}

Value result(Context& c, Expr x) { return c.b.reshape(x.to(c.out().dtype), c.out().shape); }

Values softmax(Context& c, const Args& args) {
  auto [x, along] = operand(c, args.tensor(0), args.integer(1));
  if (x.value().numel() == 0) return {c.b.zeros(c.out())};
  Expr e = exp(x - along.maximum(x));
  return {result(c, e / along.sum(e))};
}

Values log_softmax(Context& c, const Args& args) {
  auto [x, along] = operand(c, args.tensor(0), args.integer(1));
  if (x.value().numel() == 0) return {c.b.zeros(c.out())};
  Expr shifted = x - along.maximum(x);
  return {result(c, shifted - log(along.sum(exp(shifted))))};
}

// (grad, output, dim, input_dtype)
Values softmax_backward(Context& c, const Args& args) {
  auto [g, along] = operand(c, args.tensor(0), args.integer(2));
  Expr y = operand(c, args.tensor(1), args.integer(2)).x;
  return {result(c, y * (g - along.sum(g * y)))};
}

Values log_softmax_backward(Context& c, const Args& args) {
  auto [g, along] = operand(c, args.tensor(0), args.integer(2));
  Expr y = operand(c, args.tensor(1), args.integer(2)).x;
  return {result(c, g - exp(y) * along.sum(g))};
}

// Rows that are -inf throughout give zeros instead of NaN.
Values safe_softmax(Context& c, const Args& args) {
  Values y = softmax(c, args);
  auto [x, along] = operand(c, args.tensor(0), args.integer(1));
  if (x.value().numel() == 0) return y;
  Expr dead = along.maximum(x) == x.with(c.b.min_value(x.value().type()));
  Expr masked = select(dead, 0.0, Expr(c.b, c.b.reshape(y[0], x.value().shape())).to(x.dtype()));
  return {result(c, masked)};
}

}  // namespace

void add_softmax_rows(Rows& rows) {
  rows.push_back({"aten::_softmax", softmax});
  rows.push_back({"aten::_log_softmax", log_softmax});
  rows.push_back({"aten::_softmax_backward_data", softmax_backward});
  rows.push_back({"aten::_log_softmax_backward_data", log_softmax_backward});
  rows.push_back({"aten::_safe_softmax", safe_softmax});
}

}  // namespace torch_tpu::ops
