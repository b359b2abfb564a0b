// LSTM and GRU cells as PyTorch's RNN code calls them on accelerators (pointwise parts fused, products outside), and
// one direction of an LSTM layer over the whole sequence as one program.
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

// The steps of one direction, first to last, inside a loop over time.
class Steps {
 public:
  Steps(Context& c, int64_t count, bool reverse) : c_(c), count_(count), reverse_(reverse) {}

  // body(time, state) gives the next state.
  Values run(Values state, const std::function<Values(Value, const Values&)>& body) const {
    const Type index{DType::kI64, {}};
    state.insert(state.begin(), c_.b.zeros(index));
    Value end = c_.b.constant_int(index, count_), last = c_.b.constant_int(index, count_ - 1);
    Values done = c_.b.while_loop(
        state, [&](Builder& b, const Values& s) { return Values{b.lt(s[0], end)}; },
        [&](Builder& b, const Values& s) {
          Values next = body(reverse_ ? b.sub(last, s[0]) : s[0], {s.begin() + 1, s.end()});
          next.insert(next.begin(), b.add(s[0], b.ones_like(s[0])));
          return next;
        });
    done.erase(done.begin());
    return done;
  }

  // x[time] of an x [T, N, columns].
  Expr at(Value x, Value time) const {
    Value zero = c_.b.zeros(time.type());
    return {c_.b, c_.b.squeeze(c_.b.dynamic_slice(x, {time, zero, zero}, {1, x.dim(1), x.dim(2)}), 0)};
  }
  Value put(Value all, Value x, Value time) const {
    Value zero = c_.b.zeros(time.type());
    return c_.b.dynamic_update_slice(all, c_.b.unsqueeze(x, 0), {time, zero, zero});
  }
  // What each step finds: x of the step before, `first` at the first one.
  Expr before(Expr x, Value first) const {
    first = c_.b.unsqueeze(first, 0);
    if (count_ == 1) return x.with(first);
    return x.with(reverse_ ? c_.b.concatenate({c_.b.slice_dim(x, 0, 1, count_), first}, 0)
                           : c_.b.concatenate({first, c_.b.slice_dim(x, 0, 0, count_ - 1)}, 0));
  }

 private:
  Context& c_;
  const int64_t count_;
  const bool reverse_;
};

// x . y over dimension i of x and j of y, in the accumulator's dtype.
Value product(Context& c, Value x, Value y, int64_t i, int64_t j) {
  return c.b.dot(x, y, {{}, {}, {i}, {j}}, compute_dtype(x.dtype()), c.precision);
}

// [T, N, columns] -> [T * N, columns]
Value rows_of(Context& c, Value x) { return c.b.reshape(x, {x.dim(0) * x.dim(1), x.dim(2)}); }

Expr part(Expr x, int64_t index) {
  const int64_t axis = x.value().rank() - 1, width = x.value().dim(-1) / 4;
  return x.with(x.b().slice_dim(x, axis, index * width, (index + 1) * width));
}

// (x [T, N, I], h0 [N, H], c0, w_ih [4 H, I], w_hh [4 H, H], b_ih, b_hh, reverse, keep) -> output [T, N, H], h_n, c_n
// and, for the backward, the sums that enter the gates [T, N, 4 H] and the cell states [T, N, H].
//
// The input's share of the gates is one product over all steps. What the backward needs beside these two, it computes
// again for all steps at once: that costs less than one more result in every step of the loop.
Values lstm_layer(Context& c, const Args& args) {
  Value x = args.tensor(0), h0 = args.tensor(1);
  const DType dtype = x.dtype(), wider = compute_dtype(dtype);
  const int64_t time = x.dim(0), batch = x.dim(1), width = h0.dim(1);
  const bool keep = args.flag(8);
  Expr inputs(c.b, product(c, rows_of(c, x), args.tensor(3), 1, 1));
  inputs = with_bias(c, with_bias(c, inputs, args.tensor(5)), args.tensor(6));
  Value gates = c.b.reshape(inputs, {time, batch, 4 * width});
  Value weight = c.b.transpose(args.tensor(4), {1, 0});
  Value states = c.b.zeros({dtype, {time, batch, width}});
  Values start{h0, c.b.convert(args.tensor(2), wider), states};
  // Not in the place of `gates`: the engine would copy all of it in every step.
  if (keep) start.insert(start.end(), {c.b.zeros({dtype, gates.shape()}), states});
  const Steps steps(c, time, args.flag(7));
  Values done = steps.run(start, [&](Value t, const Values& s) {
    Expr sum = steps.at(gates, t) + Expr(c.b, product(c, s[0], weight, 1, 0));
    Expr cell = sigmoid(part(sum, 1)) * Expr(c.b, s[1]) + sigmoid(part(sum, 0)) * tanh(part(sum, 2));
    Value hidden = (sigmoid(part(sum, 3)) * tanh(cell)).to(dtype);
    Values next{hidden, cell, steps.put(s[2], hidden, t)};
    if (keep) next.insert(next.end(), {steps.put(s[3], sum.to(dtype), t), steps.put(s[4], cell.to(dtype), t)});
    return next;
  });
  Values results{done[2], done[0], c.b.convert(done[1], dtype), {}, {}};
  if (keep) results[3] = done[3], results[4] = done[4];
  return results;
}

// (grad_output?, grad_h?, grad_c?, x, h0, c0, w_ih, w_hh, gates, cells, reverse, mask) -> gradients of x, h0, c0, w_ih,
// w_hh, b_ih and b_hh where `mask` asks for them.
Values lstm_layer_backward(Context& c, const Args& args) {
  Value x = args.tensor(3), w_hh = args.tensor(7);
  const DType dtype = x.dtype(), wider = compute_dtype(dtype);
  const int64_t time = x.dim(0);
  const Steps steps(c, time, args.flag(10)), back(c, time, !args.flag(10));
  Expr sums = wide(c, args.tensor(8), wider), cells = wide(c, args.tensor(9), wider);
  Expr i = sigmoid(part(sums, 0)), f = sigmoid(part(sums, 1)), g = tanh(part(sums, 2)), o = sigmoid(part(sums, 3));
  Expr t = tanh(cells);
  Expr cells_before = steps.before(cells, wide(c, args.tensor(5), wider));
  // How much of a cell's gradient reaches the sums of the first three gates, of a hidden state's that of the fourth.
  Value shares =
      c.b.concatenate({g * i * (1.0 - i), cells_before * f * (1.0 - f), i * (1.0 - g * g), t * o * (1.0 - o)}, 2);
  Value through = o * (1.0 - t * t);
  const Type state{wider, args.tensor(4).shape()};
  auto initial = [&](Value grad) { return grad ? c.b.convert(grad, wider) : c.b.zeros(state); };
  Value grads = args.tensor(0) ? c.b.convert(args.tensor(0), wider) : Value();
  // Each step's shares give way to its gradient, but not to a rounded one: the engine would copy them all every time.
  const bool in_place = dtype == wider;
  Value sums_grads = in_place ? shares : c.b.zeros({dtype, shares.shape()});
  Values done = back.run({initial(args.tensor(1)), initial(args.tensor(2)), sums_grads}, [&](Value k, const Values& s) {
    Expr hidden(c.b, s[0]);
    if (grads) hidden = hidden + back.at(grads, k);
    Expr cell = Expr(c.b, s[1]) + hidden * back.at(through, k);
    Expr sum = back.at(in_place ? s[2] : shares, k) * hidden.with(c.b.concatenate({cell, cell, cell, hidden}, 1));
    sum = sum.to(dtype);
    return Values{product(c, sum, w_hh, 1, 0), cell * back.at(f, k), back.put(s[2], sum, k)};
  });
  Value gates = rows_of(c, done[2]);
  auto wanted = [&](size_t k) { return c.out(k).dtype != DType::kInvalid; };
  Values results(7);
  if (wanted(0)) results[0] = c.b.reshape(product(c, gates, args.tensor(6), 1, 0), x.shape());
  if (wanted(1)) results[1] = done[0];
  if (wanted(2)) results[2] = done[1];
  if (wanted(3)) results[3] = product(c, gates, rows_of(c, x), 0, 0);
  if (wanted(4)) results[4] = product(c, gates, rows_of(c, steps.before((o * t).to(dtype), args.tensor(4))), 0, 0);
  for (size_t k : {5, 6})
    if (wanted(k)) results[k] = c.b.reduce_sum(gates, {0});
  for (Value& result : results)
    if (result) result = c.b.convert(result, dtype);
  return results;
}

}  // namespace

void add_recurrent_rows(Rows& rows) {
  rows.push_back({"aten::_thnn_fused_lstm_cell", lstm_cell});
  rows.push_back({"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward});
  rows.push_back({"aten::_thnn_fused_gru_cell", gru_cell});
  rows.push_back({"aten::_thnn_fused_gru_cell_backward", gru_cell_backward});
  rows.push_back({"tpu::lstm_layer", lstm_layer});
  rows.push_back({"tpu::lstm_layer_backward", lstm_layer_backward});
}

}  // namespace torch_tpu::ops
