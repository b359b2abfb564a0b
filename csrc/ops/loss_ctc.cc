// Connectionist temporal classification (Graves et al. 2006): the forward and backward recursions over the labels
// interleaved with blanks, batched, one loop over time each.
#include "ops/expr.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

// Everything in the compute dtype; time T, batch N, L = 2 * labels + 1 states.
struct Lattice {
  int64_t time, batch, states;
  Value labels;        // i64 [N, L]: blank, first label, blank, ...
  Expr emitted;        // log probability of each state's label, [T, N, L]
  Value input_length;  // i64 [N]
  Value last;          // i64 [N]: twice the target's length, the last state
  Value skips;         // bool [N, L]: a state may be entered from two before
  Value state;         // i64 [N, L]: 0, 1, ...
};

Value over_states(Context& c, Value x, const Lattice& l) { return c.b.broadcast_in_dim(x, {l.batch, l.states}, {0}); }

// x moved by k states, `fill` entering.
Value shifted(Context& c, Value x, int64_t k, Value fill) { return c.b.pad(x, fill, {0, k}, {0, -k}); }

// (log_probs, targets [N, S], input_lengths, target_lengths, blank) from argument `first` on.
Lattice lattice(Context& c, const Args& args, size_t first, int64_t blank) {
  Value probs = args.tensor(first);
  const DType dtype = compute_dtype(probs.dtype());
  probs = c.b.convert(probs, dtype);
  Value targets = c.b.convert(args.tensor(first + 1), DType::kI64);
  Lattice l{probs.dim(0), probs.dim(1), 2 * targets.dim(1) + 1, {}, {c.b, {}}, {}, {}, {}, {}};
  l.input_length = c.b.convert(args.tensor(first + 2), DType::kI64);
  Value target_length = c.b.convert(args.tensor(first + 3), DType::kI64);
  l.last = c.b.add(target_length, target_length);
  Value fill = c.b.scalar_int(DType::kI64, blank);
  l.labels = c.b.pad(targets, fill, {0, 1}, {0, 1}, {0, 1});
  l.state = c.b.iota({DType::kI64, {l.batch, l.states}}, 1);
  Value before = shifted(c, l.labels, 2, c.b.scalar_int(DType::kI64, -1));
  Value two = c.b.constant_int(l.state.type(), 2);
  Value odd = c.b.ne(c.b.rem(l.state, two), c.b.zeros_like(two));
  l.skips = c.b.logical_and(c.b.logical_and(odd, c.b.ge(l.state, two)), c.b.ne(l.labels, before));
  hlo::GatherDims dims;
  dims.offset_dims = {0};
  dims.collapsed_slice_dims = {2};
  dims.operand_batching_dims = {1};
  dims.start_indices_batching_dims = {0};
  dims.start_index_map = {2};
  dims.index_vector_dim = 2;
  dims.slice_sizes = {l.time, 1, 1};
  l.emitted = Expr(c.b, c.b.gather(probs, c.b.unsqueeze(l.labels, 2), dims));
  return l;
}

// log(sum(exp)) of equal shapes; -inf where all are.
Expr log_sum(std::vector<Expr> xs) {
  Expr top = xs[0];
  for (const Expr& x : xs) top = max(top, x);
  Expr lowest = top.with(top.b().min_value(top.value().type()));
  Expr shift = select(top == lowest, 0.0, top);
  Expr sum = exp(xs[0] - shift);
  for (size_t i = 1; i < xs.size(); ++i) sum = sum + exp(xs[i] - shift);
  return log(sum) + shift;
}

Expr at_time(Context& c, const Expr& x, Value t, const Lattice& l) {
  Value zero = c.b.zeros({DType::kI64, {}});
  return {c.b, c.b.squeeze(c.b.dynamic_slice(x, {t, zero, zero}, {1, l.batch, l.states}), 0)};
}

Value put_at_time(Context& c, Value all, Value x, Value t) {
  Value zero = c.b.zeros({DType::kI64, {}});
  return c.b.dynamic_update_slice(all, c.b.unsqueeze(x, 0), {t, zero, zero});
}

// States of the target's own lattice: up to `last`.
Value inside(Context& c, const Lattice& l) { return c.b.le(l.state, over_states(c, l.last, l)); }
// The two states in which a complete labelling may end.
Value final_states(Context& c, const Lattice& l) {
  Value last = over_states(c, l.last, l);
  Value from = c.b.sub(last, c.b.ones_like(last));
  return c.b.logical_and(c.b.ge(l.state, from), c.b.le(l.state, last));
}

// (log_probs, targets, input_lengths, target_lengths, blank, zero_infinity) -> neg_log_likelihood, log_alpha [N, T, L]
Values ctc_loss(Context& c, const Args& args) {
  if (args.tensor(1).rank() != 2) return {c.b.fail(ErrorCode::kNotImplemented, c.op + ": targets must be padded"), {}};
  const Lattice l = lattice(c, args, 0, args.integer(4));
  const Type plane{l.emitted.dtype(), {l.batch, l.states}};
  Value lowest = c.b.min_value(plane), lowest_scalar = c.b.min_value({plane.dtype, {}});
  Value end = c.b.constant_int({DType::kI64, {}}, l.time), zero = c.b.zeros({DType::kI64, {}});
  Value valid = inside(c, l);
  Values done = c.b.while_loop(
      {zero, lowest, c.b.zeros(l.emitted.value().type())},
      [&](Builder& b, const Values& s) { return Values{b.lt(s[0], end)}; },
      [&](Builder& b, const Values& s) {
        Expr alpha(b, s[1]), emit = at_time(c, l.emitted, s[0], l);
        Expr skip = select(Expr(b, l.skips), Expr(b, shifted(c, alpha, 2, lowest_scalar)), Expr(b, lowest));
        Expr next = log_sum({alpha, {b, shifted(c, alpha, 1, lowest_scalar)}, skip});
        // A labelling starts in the first blank or the first label.
        Value first = b.broadcast(b.eq(s[0], zero), plane.shape);
        Value start = b.select(b.le(l.state, b.ones_like(l.state)), b.zeros(plane), lowest);
        next = Expr(b, b.select(first, start, next)) + emit;
        Value running = b.lt(b.broadcast(s[0], l.input_length.shape()), l.input_length);
        Value kept = b.select(over_states(c, running, l), b.select(valid, next, lowest), alpha);
        return Values{b.add(s[0], b.ones_like(s[0])), kept, put_at_time(c, s[2], kept, s[0])};
      });
  Expr ends(c.b, c.b.select(final_states(c, l), done[1], lowest));
  Expr top = ends.with(c.b.reduce_max(ends, {1}));
  Expr shift = select(top == top.with(c.b.min_value(top.value().type())), 0.0, top);
  Expr sum = ends.with(c.b.reduce_sum(exp(ends - ends.with(over_states(c, shift, l))), {1}));
  Expr loss = -(log(sum) + shift);
  // No time steps: certain when nothing is to be written, else impossible.
  Value empty = c.b.eq(l.input_length, c.b.zeros_like(l.input_length));
  Value silent = c.b.eq(l.last, c.b.zeros_like(l.last));
  Value without = c.b.select(silent, c.b.zeros_like(loss), c.b.max_value(loss.value().type()));
  return {c.b.convert(c.b.select(empty, without, loss), c.out(0).dtype),
          c.b.convert(c.b.transpose(done[2], {1, 0, 2}), c.out(1).dtype)};
}

// The backward variables of every time, [T, N, L].
Expr betas(Context& c, const Lattice& l) {
  const Type plane{l.emitted.dtype(), {l.batch, l.states}};
  Value lowest = c.b.min_value(plane), lowest_scalar = c.b.min_value({plane.dtype, {}});
  Value zero = c.b.zeros({DType::kI64, {}}), one = c.b.ones({DType::kI64, {}});
  Value valid = inside(c, l), ends = final_states(c, l);
  Value enters = c.b.pad(l.skips, c.b.zeros({DType::kBool, {}}), {0, -2}, {0, 2});  // state s + 2 may be entered from s
  return {c.b, c.b.while_loop(
                   {c.b.constant_int({DType::kI64, {}}, l.time - 1), lowest, c.b.zeros(l.emitted.value().type())},
                   [&](Builder& b, const Values& s) { return Values{b.ge(s[0], zero)}; },
                   [&](Builder& b, const Values& s) {
                     Expr beta(b, s[1]), emit = at_time(c, l.emitted, s[0], l);
                     Expr skip = select(Expr(b, enters), Expr(b, shifted(c, beta, -2, lowest_scalar)), Expr(b, lowest));
                     Expr next = log_sum({beta, {b, shifted(c, beta, -1, lowest_scalar)}, skip});
                     Value step = b.broadcast(b.add(s[0], one), l.input_length.shape());
                     Value last = over_states(c, b.eq(step, l.input_length), l);
                     Value running = over_states(c, b.le(step, l.input_length), l);
                     next = Expr(b, b.select(last, b.select(ends, b.zeros(plane), lowest), next)) + emit;
                     Value kept = b.select(b.logical_and(running, valid), next, lowest);
                     return Values{b.sub(s[0], one), kept, put_at_time(c, s[2], kept, s[0])};
                   })[2]};
}

// (grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, blank, zero_infinity)
Values ctc_loss_backward(Context& c, const Args& args) {
  if (args.tensor(2).rank() != 2) return {c.b.fail(ErrorCode::kNotImplemented, c.op + ": targets must be padded")};
  const Lattice l = lattice(c, args, 1, args.integer(7));
  const DType dtype = l.emitted.dtype();
  Expr probs(c.b, c.b.convert(args.tensor(1), dtype));
  const Shape& wide = probs.value().shape();
  Expr alpha(c.b, c.b.transpose(c.b.convert(args.tensor(6), dtype), {1, 0, 2}));
  Expr both = alpha + betas(c, l);
  // What each state contributes, summed by label; scaled by the largest of its time step.
  Expr top = both.with(c.b.reduce_max(both, {2}));
  Expr shift = select(top == top.with(c.b.min_value(top.value().type())), 0.0, top);
  Expr weight = exp(both - both.with(c.b.broadcast_in_dim(shift, both.value().shape(), {0, 1})));
  const Shape table{l.batch, l.states, wide[2]};
  Value one_hot =
      c.b.convert(c.b.eq(c.b.broadcast_in_dim(l.labels, table, {0, 1}), c.b.iota({DType::kI64, table}, 2)), dtype);
  // [N, T, C]
  Value sums = c.b.dot(weight, one_hot, {{1}, {0}, {2}, {1}}, dtype, hlo::Precision::kHighest);
  Expr by_label =
      log(Expr(c.b, c.b.transpose(sums, {1, 0, 2}))) + probs.with(c.b.broadcast_in_dim(shift, wide, {0, 1}));
  auto per_sample = [&](Value x) { return Expr(c.b, c.b.broadcast_in_dim(x, wide, {1})); };
  Expr loss(c.b, c.b.convert(args.tensor(5), dtype)), grad(c.b, c.b.convert(args.tensor(0), dtype));
  Expr result = (exp(probs) - exp(by_label + per_sample(loss) - probs)) * per_sample(grad);
  Value running = c.b.lt(c.b.iota({DType::kI64, wide}, 0), per_sample(l.input_length));
  if (args.flag_or(8, false)) {
    Value possible = c.b.ne(loss, c.b.max_value(loss.value().type()));
    running = c.b.logical_and(running, per_sample(possible));
  }
  return {c.b.convert(c.b.select(running, result, c.b.zeros_like(result)), c.out().dtype)};
}

}  // namespace

void add_ctc_rows(Rows& rows);  // called by loss.cc

void add_ctc_rows(Rows& rows) {
  rows.push_back({"aten::_ctc_loss.Tensor", ctc_loss});
  rows.push_back({"aten::_ctc_loss_backward.Tensor", ctc_loss_backward});
}

}  // namespace torch_tpu::ops
