// LSTM and GRU cells as PyTorch's RNN code calls them on accelerators: pointwise parts fused, products outside.
#include "ops/expr.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

Expr sigmoid(Expr x) { return call("logistic", x); }

Expr columns(Expr x, int64_t index, int64_t width) {
  return x.with(x.b().slice_dim(x, 1, index * width, (index + 1) * width));
}

Expr wide(Context& c, Value v, DType dtype) { return {c.b, c.b.convert(v, dtype)}; }

// gates + bias, where there is one.
Expr with_bias(Context& c, Expr gates, Value bias) {
  return bias ? gates + gates.with(as(c, bias, gates.dtype(), gates.value().shape())) : gates;
}

Value joined(Context& c, const Values& parts, DType dtype) { return c.b.convert(c.b.concatenate(parts, 1), dtype); }

// Sum over the batch.
Value bias_gradient(Context& c, Value gates, const Type& type) {
  return c.b.convert(c.b.reduce_sum(gates, {0}), type.dtype);
}

// (input_gates, hidden_gates, cx, input_bias, hidden_bias) -> hy, cy, workspace (the activated gates i, f, g, o)
Values lstm_cell(Context& c, const Args& args) {
  const DType dtype = compute_dtype(args.tensor(0).dtype());
  Expr gates = with_bias(c, wide(c, args.tensor(0), dtype), args.tensor(3)) +
               with_bias(c, wide(c, args.tensor(1), dtype), args.tensor(4));
  const int64_t n = args.tensor(2).dim(1);
  Expr i = sigmoid(columns(gates, 0, n)), f = sigmoid(columns(gates, 1, n)), g = tanh(columns(gates, 2, n)),
       o = sigmoid(columns(gates, 3, n));
  Expr cy = f * wide(c, args.tensor(2), dtype) + i * g;
  Expr hy = o * tanh(cy);
  return {hy.to(c.out(0).dtype), cy.to(c.out(1).dtype), joined(c, {i, f, g, o}, c.out(2).dtype)};
}

// (grad_hy, grad_cy, cx, cy, workspace, has_bias) -> grad_gates, grad_cx, grad_bias
Values lstm_cell_backward(Context& c, const Args& args) {
  const DType dtype = compute_dtype(args.tensor(2).dtype());
  Expr w = wide(c, args.tensor(4), dtype);
  Expr cx = wide(c, args.tensor(2), dtype);
  Expr t = tanh(wide(c, args.tensor(3), dtype));
  const int64_t n = args.tensor(2).dim(1);
  Expr i = columns(w, 0, n), f = columns(w, 1, n), g = columns(w, 2, n), o = columns(w, 3, n);
  Expr gh = args.tensor(0) ? wide(c, args.tensor(0), dtype) : t.like(0);
  Expr gc = gh * o * (1.0 - t * t);
  if (args.tensor(1)) gc = gc + wide(c, args.tensor(1), dtype);
  Expr gi = gc * g * i * (1.0 - i);
  Expr gf = gc * cx * f * (1.0 - f);
  Expr gg = gc * i * (1.0 - g * g);
  Expr go = gh * t * o * (1.0 - o);
  Value gates = c.b.concatenate({gi, gf, gg, go}, 1);
  Values results{c.b.convert(gates, c.out(0).dtype), (gc * f).to(c.out(1).dtype), {}};
  if (c.out(2).dtype != DType::kInvalid) results[2] = bias_gradient(c, gates, c.out(2));
  return results;
}

// (input_gates, hidden_gates, hx, input_bias, hidden_bias) -> hy, workspace (r, z, n, hx, hidden part of n)
Values gru_cell(Context& c, const Args& args) {
  const DType dtype = compute_dtype(args.tensor(0).dtype());
  Expr x = with_bias(c, wide(c, args.tensor(0), dtype), args.tensor(3));
  Expr h = with_bias(c, wide(c, args.tensor(1), dtype), args.tensor(4));
  Expr hx = wide(c, args.tensor(2), dtype);
  const int64_t width = args.tensor(2).dim(1);
  Expr r = sigmoid(columns(x, 0, width) + columns(h, 0, width));
  Expr z = sigmoid(columns(x, 1, width) + columns(h, 1, width));
  Expr hidden = columns(h, 2, width);
  Expr n = tanh(columns(x, 2, width) + r * hidden);
  Expr hy = n + z * (hx - n);
  return {hy.to(c.out(0).dtype), joined(c, {r, z, n, hx, hidden}, c.out(1).dtype)};
}

// (grad_hy, workspace, has_bias) -> grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias
Values gru_cell_backward(Context& c, const Args& args) {
  const DType dtype = compute_dtype(args.tensor(0).dtype());
  Expr g = wide(c, args.tensor(0), dtype);
  Expr w = wide(c, args.tensor(1), dtype);
  const int64_t width = args.tensor(0).dim(1);
  Expr r = columns(w, 0, width), z = columns(w, 1, width), n = columns(w, 2, width), hx = columns(w, 3, width),
       hidden = columns(w, 4, width);
  Expr gn = g * (1.0 - z) * (1.0 - n * n);
  Expr gz = g * (hx - n) * z * (1.0 - z);
  Expr gr = gn * hidden * r * (1.0 - r);
  Value input = c.b.concatenate({gr, gz, gn}, 1);
  Value hidden_gates = c.b.concatenate({gr, gz, gn * r}, 1);
  Values results{c.b.convert(input, c.out(0).dtype),
                 c.b.convert(hidden_gates, c.out(1).dtype),
                 (g * z).to(c.out(2).dtype),
                 {},
                 {}};
  if (c.out(3).dtype != DType::kInvalid) results[3] = bias_gradient(c, input, c.out(3));
  if (c.out(4).dtype != DType::kInvalid) results[4] = bias_gradient(c, hidden_gates, c.out(4));
  return results;
}

}  // namespace

void add_recurrent_rows(Rows& rows) {
  rows.push_back({"aten::_thnn_fused_lstm_cell", lstm_cell});
  rows.push_back({"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward});
  rows.push_back({"aten::_thnn_fused_gru_cell", gru_cell});
  rows.push_back({"aten::_thnn_fused_gru_cell_backward", gru_cell_backward});
}

}  // namespace torch_tpu::ops
