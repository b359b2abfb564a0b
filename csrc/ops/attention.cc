// Scaled dot product attention, forward and backward, as one program each (PyTorch's overrideable backend).
//
// Scores and softmax are in f32 for f16 and bf16. Grouped queries are inferred from the head counts: the queries of one
// key head are rows of one matrix product. The backward recomputes the probabilities from the log-sum-exp.
#include <cmath>

#include "ops/expr.h"
#include "ops/philox.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

struct Attention {
  int64_t batch, heads, key_heads, queries, keys, depth, value_depth;
  double scale;
  bool causal;
  double dropout;
  Shape scores() const { return {batch, heads, queries, keys}; }
  Shape grouped(int64_t last) const { return {batch, key_heads, heads / key_heads * queries, last}; }
};

Attention describe(Value q, Value k, Value v, double dropout, bool causal, double scale) {
  return {q.dim(0), q.dim(1), k.dim(1), q.dim(2), k.dim(2), q.dim(3), v.dim(3), scale, causal, dropout};
}

double scale_or_default(const Args& args, size_t i, Value q) {
  return args.number_or(i, 1.0 / std::sqrt(static_cast<double>(q.dim(3))));
}

DType score_dtype(Value q) { return compute_dtype(q.dtype()); }

// x [B, H, Q, n] as [B, Hk, G * Q, n] and back.
Value group(Context& c, const Attention& a, Value x) { return c.b.reshape(x, a.grouped(x.dim(3))); }
Value ungroup(Context& c, const Attention& a, Value x) {
  return c.b.reshape(x, {a.batch, a.heads, a.queries, x.dim(3)});
}

// q . k^T * scale + bias, with masked places at -inf.
Expr scores(Context& c, const Attention& a, Value q, Value k, Value bias) {
  const DType dtype = score_dtype(q);
  Value s = c.b.dot(group(c, a, q), k, {{0, 1}, {0, 1}, {3}, {3}}, dtype, c.precision);
  Expr x(c.b, ungroup(c, a, s));
  x = x * a.scale;
  if (bias) {
    if (is_bool(bias.dtype()))
      x = select(x.with(c.b.broadcast(bias, a.scores())), x, x.with(c.b.min_value(x.value().type())));
    else
      x = x + x.with(as(c, bias, dtype, a.scores()));
  }
  if (a.causal) {
    const Type index{DType::kI32, a.scores()};
    x = select(x.with(c.b.ge(c.b.iota(index, 2), c.b.iota(index, 3))), x, x.with(c.b.min_value(x.value().type())));
  }
  return x;
}

Expr along_keys(Context& c, const Attention& a, Expr row) {
  return row.with(c.b.broadcast_in_dim(row, a.scores(), {0, 1, 2}));
}

// 1 / (1 - p) where kept, 0 where dropped; the same for the same rng state.
Expr dropout_factor(Context& c, const Attention& a, DType dtype) {
  Expr keep = Random(c, a.scores()).uniform(DType::kF32) < 1 - a.dropout;
  Expr one(c.b, c.b.ones({dtype, a.scores()}));
  return select(keep, one * (a.dropout < 1 ? 1 / (1 - a.dropout) : 0.0), 0.0);
}

// (query, key, value, attn_bias, dropout_p, is_causal, return_debug_mask, *, scale)
// -> output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, philox_seed, philox_offset, debug_attn_mask
Values attention(Context& c, const Args& args) {
  const Value q = args.tensor(0), k = args.tensor(1), v = args.tensor(2);
  const Attention a = describe(q, k, v, args.number_or(4, 0), args.flag_or(5, false), scale_or_default(args, 7, q));
  if (a.heads % a.key_heads != 0)
    return {c.fail("the number of query heads must be a multiple of the key heads, got " + std::to_string(a.heads) +
                   " and " + std::to_string(a.key_heads))};
  Expr s = scores(c, a, q, k, args.tensor(3));
  Expr top = s.with(c.b.reduce_max(s, {3}));
  // A row without any visible key: its maximum is -inf, its probabilities are zero.
  Expr lowest = top.with(c.b.min_value(top.value().type()));
  Expr shift = select(top == lowest, 0.0, top);
  Expr e = exp(s - along_keys(c, a, shift));
  Expr sum = e.with(c.b.reduce_sum(e, {3}));
  Expr lse = select(top == lowest, lowest, shift + log(sum));
  Expr p = e / along_keys(c, a, select(sum == 0.0, 1.0, sum));
  Values results(9);
  for (size_t i = 1; i < 9; ++i)
    if (c.out(i).dtype != DType::kInvalid) results[i] = c.b.zeros(c.out(i));
  if (a.dropout > 0) {
    c.random_blocks = (element_count(a.scores()) + 3) / 4;
    p = p * dropout_factor(c, a, p.dtype());
    for (int64_t i = 0; i < 2; ++i)
      results[6 + i] = c.b.reshape(c.b.convert(c.b.slice(c.rng_state, {i}, {i + 1}), c.out(6 + i).dtype), {});
  }
  Value out = c.b.dot(group(c, a, p.to(q.dtype())), v, {{0, 1}, {0, 1}, {3}, {2}}, score_dtype(q), c.precision);
  results[0] = c.b.convert(ungroup(c, a, out), c.out(0).dtype);
  if (c.out(1).dtype != DType::kInvalid) results[1] = lse.to(c.out(1).dtype);
  return results;
}

// Sums a gradient of the scores' shape down to the bias's shape.
Value bias_gradient(Context& c, Expr ds, const Type& type) {
  const int64_t extra = 4 - static_cast<int64_t>(type.shape.size());
  Dims dims;
  for (int64_t i = 0; i < 4; ++i)
    if (i < extra || (type.shape[i - extra] == 1 && ds.value().dim(i) != 1)) dims.push_back(i);
  return c.b.reshape(c.b.convert(c.b.reduce_sum(ds, dims), type.dtype), type.shape);
}

// The forward's probabilities, from its logsumexp. PyTorch keeps that in float32, too little for double scores: those
// are reduced again.
Expr probabilities(Context& c, const Attention& a, Expr s, Value logsumexp) {
  if (s.dtype() != DType::kF64) {
    Expr lse(c.b, c.b.convert(logsumexp, s.dtype()));
    Expr dead = lse == lse.with(c.b.min_value(lse.value().type()));
    return select(along_keys(c, a, dead), 0.0, exp(s - along_keys(c, a, select(dead, 0.0, lse))));
  }
  Expr top = s.with(c.b.reduce_max(s, {3}));
  Expr e = exp(s - along_keys(c, a, select(top == top.with(c.b.min_value(top.value().type())), 0.0, top)));
  Expr sum = e.with(c.b.reduce_sum(e, {3}));
  return e / along_keys(c, a, select(sum == 0.0, 1.0, sum));
}

// (grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
//  dropout_p, is_causal, philox_seed, philox_offset, *, scale)
Values attention_backward(Context& c, const Args& args) {
  const Value q = args.tensor(1), k = args.tensor(2), v = args.tensor(3);
  const Attention a = describe(q, k, v, args.number(12), args.flag(13), scale_or_default(args, 16, q));
  const DType dtype = score_dtype(q);
  const DType narrow = q.dtype();
  Expr s = scores(c, a, q, k, args.tensor(4));
  Expr p = probabilities(c, a, s, args.tensor(7));
  Expr go(c.b, c.b.convert(args.tensor(0), dtype));
  Expr delta = go.with(c.b.reduce_sum(go * Expr(c.b, c.b.convert(args.tensor(6), dtype)), {3}));
  const Value grad = group(c, a, c.b.convert(args.tensor(0), narrow));
  Expr dp(c.b, ungroup(c, a, c.b.dot(grad, v, {{0, 1}, {0, 1}, {3}, {3}}, dtype, c.precision)));
  Expr kept = p;
  if (a.dropout > 0) {
    auto word = [&](size_t i) { return c.b.reshape(c.b.convert(args.tensor(i), DType::kU64), {1}); };
    c.rng_state = c.b.concatenate({word(14), word(15)}, 0);
    Expr factor = dropout_factor(c, a, dtype);
    kept = p * factor;
    dp = dp * factor;
  }
  Expr ds = p * (dp - along_keys(c, a, delta));
  const Value scaled = group(c, a, (ds * a.scale).to(narrow));
  Values results(4);
  if (c.out(0).dtype != DType::kInvalid)
    results[0] =
        c.b.convert(ungroup(c, a, c.b.dot(scaled, k, {{0, 1}, {0, 1}, {3}, {2}}, dtype, c.precision)), c.out(0).dtype);
  if (c.out(1).dtype != DType::kInvalid)
    results[1] =
        c.b.convert(c.b.dot(scaled, group(c, a, q), {{0, 1}, {0, 1}, {2}, {2}}, dtype, c.precision), c.out(1).dtype);
  if (c.out(2).dtype != DType::kInvalid)
    results[2] = c.b.convert(
        c.b.dot(group(c, a, kept.to(narrow)), grad, {{0, 1}, {0, 1}, {2}, {2}}, dtype, c.precision), c.out(2).dtype);
  if (c.out(3).dtype != DType::kInvalid) results[3] = bias_gradient(c, ds, c.out(3));
  return results;
}

}  // namespace

void add_attention_rows(Rows& rows) {
  rows.push_back(Row{"aten::_scaled_dot_product_fused_attention_overrideable", attention}.as_random_when(4));
  rows.push_back({"aten::_scaled_dot_product_fused_attention_overrideable_backward", attention_backward});
}

}  // namespace torch_tpu::ops
