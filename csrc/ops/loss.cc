// Losses and their gradients. Elementwise losses are a family: term(x, y) and its derivative; class losses pick one
// column per row.
#include "ops/expr.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };  // at::Reduction

Dims every(Value x) {
  Dims dims;
  for (int64_t i = 0; i < x.rank(); ++i) dims.push_back(i);
  return dims;
}

Expr total(Expr x) { return x.with(x.b().reduce_sum(x, every(x))); }

Expr spread(Expr x, const Shape& shape) { return x.with(x.b().broadcast(x, shape)); }

// Reduces terms of the compute dtype to the result.
Value reduced(Context& c, Expr terms, int64_t reduction) {
  if (reduction == kNone) return terms.to(c.out().dtype);
  Expr sum = total(terms);
  if (reduction == kMean) sum = sum / sum.with(c.b.extents(terms, {}, terms.dtype()));
  return sum.to(c.out().dtype);
}

// --- elementwise losses
// -----------------------------------------------------------------------------------------------

// A term of the loss; `parameter` is beta, delta, ... where the loss has one.
using Term = Expr (*)(Expr x, Expr y, double parameter);

struct Pair {
  Expr x, y;
};

Pair pair(Context& c, const Args& args, size_t x, size_t y) {
  const DType dtype = compute_dtype(promote_types(args.tensor(x).dtype(), args.tensor(y).dtype()));
  const Shape shape = broadcast_shapes({args.tensor(x).shape(), args.tensor(y).shape()});
  return {{c.b, as(c, args.tensor(x), dtype, shape)}, {c.b, as(c, args.tensor(y), dtype, shape)}};
}

// loss(self, target, reduction, parameter?)
Rule elementwise(Term term) {
  return [term](Context& c, const Args& args) -> Values {
    auto [x, y] = pair(c, args, 0, 1);
    return {reduced(c, term(x, y, args.number_or(3, 0)), args.integer(2))};
  };
}

// loss_backward(grad, self, target, reduction, parameter?): grad * d(term)/dx, divided by the count for a mean.
Rule elementwise_gradient(Term derivative) {
  return [derivative](Context& c, const Args& args) -> Values {
    auto [x, y] = pair(c, args, 1, 2);
    Expr g = x.with(as(c, args.tensor(0), x.dtype(), x.value().shape()));
    Expr result = derivative(x, y, args.number_or(4, 0)) * g;
    if (args.integer(3) == kMean) result = result / spread(x.with(c.b.extents(x, {}, x.dtype())), x.value().shape());
    return {result.to(c.out().dtype)};
  };
}

Expr sign(Expr x) { return call("sign", x); }

Expr mse(Expr x, Expr y, double) { return (x - y) * (x - y); }
Expr mse_derivative(Expr x, Expr y, double) { return (x - y) * 2.0; }

// beta == 0 is the plain absolute difference.
Expr smooth_l1(Expr x, Expr y, double beta) {
  Expr d = abs(x - y);
  return beta == 0 ? d : select(d < beta, d * d * (0.5 / beta), d - 0.5 * beta);
}
Expr smooth_l1_derivative(Expr x, Expr y, double beta) {
  Expr d = x - y;
  return beta == 0 ? sign(d) : select(abs(d) < beta, d * (1.0 / beta), sign(d));
}

Expr huber(Expr x, Expr y, double delta) {
  Expr d = abs(x - y);
  return select(d <= delta, d * d * 0.5, (d - 0.5 * delta) * delta);
}
Expr huber_derivative(Expr x, Expr y, double delta) {
  Expr d = x - y;
  return select(abs(d) <= delta, d, sign(d) * delta);
}

Expr soft_margin(Expr x, Expr y, double) { return log1p(exp(-(x * y))); }
Expr soft_margin_derivative(Expr x, Expr y, double) {
  Expr z = exp(-(x * y));
  return -(y * z) / (z + 1.0);
}

// --- binary cross entropy
// ----------------------------------------------------------------------------------------------

// (self, target, weight, reduction). Logs are clamped at -100, as in PyTorch.
Values binary_cross_entropy(Context& c, const Args& args) {
  auto [x, y] = pair(c, args, 0, 1);
  c.check_index(!((x >= 0.0) & (x <= 1.0)));
  Expr terms = (y - 1.0) * max(log1p(-x), -100.0) - y * max(log(x), -100.0);
  if (args.tensor(2)) terms = terms * x.with(as(c, args.tensor(2), x.dtype(), x.value().shape()));
  return {reduced(c, terms, args.integer_or(3, kMean))};
}

// (grad, self, target, weight, reduction)
Values binary_cross_entropy_backward(Context& c, const Args& args) {
  auto [x, y] = pair(c, args, 1, 2);
  Expr g = x.with(as(c, args.tensor(0), x.dtype(), x.value().shape()));
  Expr result = g * (x - y) / max((1.0 - x) * x, 1e-12);
  if (args.tensor(3)) result = result * x.with(as(c, args.tensor(3), x.dtype(), x.value().shape()));
  if (args.integer_or(4, kMean) == kMean)
    result = result / spread(x.with(c.b.extents(x, {}, x.dtype())), x.value().shape());
  return {result.to(c.out().dtype)};
}

// (self, target, weight, pos_weight, reduction), in the form that never overflows.
Values binary_cross_entropy_with_logits(Context& c, const Args& args) {
  auto [x, y] = pair(c, args, 0, 1);
  Expr softplus = max(-x, 0.0) + log1p(exp(-abs(x)));
  Expr terms = x;
  if (args.tensor(3)) {
    Expr weight = (x.with(as(c, args.tensor(3), x.dtype(), x.value().shape())) - 1.0) * y + 1.0;
    terms = (1.0 - y) * x + weight * softplus;
  } else {
    terms = (1.0 - y) * x + softplus;
  }
  if (args.tensor(2)) terms = terms * x.with(as(c, args.tensor(2), x.dtype(), x.value().shape()));
  return {reduced(c, terms, args.integer_or(4, kMean))};
}

// --- negative log likelihood
// -------------------------------------------------------------------------------------------

// One row per target: scores [M, C], target [M]; the row shape is what the target's shape was.
struct ClassRows {
  Value scores;  // [.., C], class dim last
  Value target;  // i64, the shape of a row index
  Expr weight;   // weight of each target's class, 0 where ignored; shape of target
  Value picked;  // bool, shape of scores: this class is the target
};

// Class scores with the class dim moved last; a 1-D input is one row, a 0-d one a row of one class.
Value classes_last(Context& c, Value x) {
  if (x.rank() <= 1) return c.b.reshape(x, {1, x.numel()});
  Dims order;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != 1) order.push_back(i);
  order.push_back(1);
  return c.b.transpose(x, order);
}

// self[n, target[n, ...], ...] with the targets clamped: reads one score per row, where a sum over selected ones reads
// them all (the embedded engine: 0.7 ms for 2048 rows of 1024). A TPU gathers slower than it sums.
Value gathered(Context& c, Value self, Value target) {
  if (self.rank() <= 1) self = c.b.reshape(self, {1, self.numel()});
  hlo::GatherDims dims;
  for (int64_t i = 0; i < self.rank(); ++i) {
    if (i != 1) dims.operand_batching_dims.push_back(i);
    if (i < target.rank()) dims.start_indices_batching_dims.push_back(i);
  }
  dims.collapsed_slice_dims = dims.start_index_map = {1};
  dims.index_vector_dim = target.rank();
  dims.slice_sizes.assign(self.rank(), 1);
  return c.b.gather(self, c.b.unsqueeze(target, target.rank()), dims);
}

Value gathered_weight(Context& c, Value weight, Value target) {
  hlo::GatherDims dims;
  dims.collapsed_slice_dims = dims.start_index_map = {0};
  dims.index_vector_dim = target.rank();
  dims.slice_sizes = {1};
  return c.b.gather(weight, c.b.unsqueeze(target, target.rank()), dims);
}

ClassRows class_rows(Context& c, Value self, Value target, Value weight, int64_t ignore) {
  const DType dtype = compute_dtype(self.dtype());
  ClassRows r{classes_last(c, c.b.convert(self, dtype)), c.b.convert(target, DType::kI64), {c.b, {}}, {}};
  Shape rows(r.scores.shape().begin(), r.scores.shape().end() - 1);
  r.target = c.b.reshape(r.target, rows);
  const int64_t classes = r.scores.dim(-1);
  Value ignored = c.b.eq(r.target, c.b.constant_int(r.target.type(), ignore));
  Value outside = c.b.logical_or(c.b.lt(r.target, c.b.zeros_like(r.target)),
                                 c.b.ge(r.target, c.b.constant_int(r.target.type(), classes)));
  c.check_index(c.b.logical_and(outside, c.b.logical_not(ignored)));
  Dims leading;
  for (int64_t i = 0; i + 1 < r.scores.rank(); ++i) leading.push_back(i);
  const Type wide{DType::kI64, r.scores.shape()};
  r.picked = c.b.eq(c.b.iota(wide, r.scores.rank() - 1), c.b.broadcast_in_dim(r.target, wide.shape, leading));
  Expr one(c.b, c.b.ones({dtype, rows}));
  if (weight && c.platform == Platform::kCpu) {
    one = Expr(c.b, gathered_weight(c, c.b.convert(weight, dtype), r.target));
  } else if (weight) {
    Expr spread_weight(c.b, c.b.broadcast_in_dim(c.b.convert(weight, dtype), wide.shape, {r.scores.rank() - 1}));
    Expr chosen = select(Expr(c.b, r.picked), spread_weight, 0.0);
    one = one.with(c.b.reduce_sum(chosen, {r.scores.rank() - 1}));
  }
  r.weight = select(Expr(c.b, ignored), 0.0, one);
  return r;
}

// (self, target, weight, reduction, ignore_index) -> output, total_weight; also the spatial form.
Values nll_forward(Context& c, const Args& args) {
  ClassRows r = class_rows(c, args.tensor(0), args.tensor(1), args.tensor(2), args.integer(4));
  Expr scores(c.b, r.scores);
  Expr score = scores.with(c.platform == Platform::kCpu
                               ? c.b.convert(gathered(c, args.tensor(0), r.target), scores.dtype())
                               : c.b.reduce_sum(select(Expr(c.b, r.picked), scores, 0.0), {r.scores.rank() - 1}));
  // An ignored row adds nothing even where its score is infinite or NaN.
  Expr terms = select(r.weight == 0.0, 0.0, -(score * r.weight));
  const int64_t reduction = args.integer(3);
  Expr sum_weight = total(r.weight);
  if (reduction == kNone) return {c.b.reshape(terms.to(c.out(0).dtype), c.out(0).shape), c.b.zeros(c.out(1))};
  Expr loss = total(terms);
  if (reduction == kMean) loss = loss / sum_weight;
  return {loss.to(c.out(0).dtype), c.b.reshape(sum_weight.to(c.out(1).dtype), c.out(1).shape)};
}

// (grad, self, target, weight, reduction, ignore_index, total_weight)
Values nll_backward(Context& c, const Args& args) {
  ClassRows r = class_rows(c, args.tensor(1), args.tensor(2), args.tensor(3), args.integer(5));
  const Shape& rows = r.weight.value().shape();
  const DType dtype = r.weight.dtype();
  Expr g(c.b, c.b.convert(args.tensor(0), dtype));
  g = args.integer(4) == kNone ? g.with(c.b.reshape(g, rows)) : spread(g.with(c.b.reshape(g, {})), rows);
  Expr row = -(g * r.weight);
  if (args.integer(4) == kMean)
    row = row / spread(Expr(c.b, c.b.reshape(c.b.convert(args.tensor(6), dtype), {})), rows);
  row = select(r.weight == 0.0, 0.0, row);
  Dims leading;
  for (size_t i = 0; i < rows.size(); ++i) leading.push_back(static_cast<int64_t>(i));
  Expr wide = row.with(c.b.broadcast_in_dim(row, r.scores.shape(), leading));
  Value result = select(Expr(c.b, r.picked), wide, 0.0);
  const Value self = args.tensor(1);
  if (self.rank() > 2) {
    Dims order{0, self.rank() - 1};
    for (int64_t i = 1; i + 1 < self.rank(); ++i) order.push_back(i);
    result = c.b.transpose(result, order);
  }
  return {c.b.reshape(c.b.convert(result, c.out().dtype), c.out().shape)};
}

// --- margins
// -----------------------------------------------------------------------------------------------------------

// (self, target, p, margin, weight, reduction): mean over classes of max(0, margin - x[t] + x[i])^p, i != t.
struct Margin {
  ClassRows rows;
  Expr gap;     // margin - x[t] + x[i], where positive and i != t; else 0
  Expr weight;  // of the target's class, spread over the classes
};

Margin margin_rows(Context& c, const Args& args, size_t first) {
  Margin m{class_rows(c, args.tensor(first), args.tensor(first + 1), args.tensor(first + 4), INT64_MIN),
           {c.b, {}},
           {c.b, {}}};
  Expr x(c.b, m.rows.scores);
  const Shape& shape = m.rows.scores.shape();
  Expr target = x.with(c.b.reduce_sum(select(Expr(c.b, m.rows.picked), x, 0.0), {1}));
  auto wide = [&](Expr v) { return v.with(c.b.broadcast_in_dim(v, shape, {0})); };
  Expr gap = x - wide(target) + x.with(as(c, args, first + 3, x.dtype(), shape));
  m.gap = select(Expr(c.b, m.rows.picked), 0.0, max(gap, 0.0));
  m.weight = wide(m.rows.weight);
  return m;
}

Values multi_margin_loss(Context& c, const Args& args) {
  Margin m = margin_rows(c, args, 0);
  Expr p = m.gap.with(as(c, args, 2, m.gap.dtype(), m.gap.value().shape()));
  Expr terms = select(m.gap > 0.0, pow(m.gap, p), 0.0) * m.weight;
  Expr loss = m.gap.with(c.b.reduce_sum(terms, {1}));
  loss = loss / spread(loss.with(c.b.extent(m.rows.scores, 1, loss.dtype())), loss.value().shape());
  if (args.integer(5) == kNone) return {c.b.reshape(loss.to(c.out().dtype), c.out().shape)};
  return {reduced(c, loss, args.integer(5))};
}

// (grad, self, target, p, margin, weight, reduction)
Values multi_margin_loss_backward(Context& c, const Args& args) {
  Margin m = margin_rows(c, args, 1);
  const Shape& shape = m.gap.value().shape();
  Expr p = m.gap.with(as(c, args, 3, m.gap.dtype(), shape));
  Expr slope = select(m.gap > 0.0, p * pow(m.gap, p - 1.0), 0.0) * m.weight;
  slope = slope / spread(slope.with(c.b.extent(m.rows.scores, 1, slope.dtype())), shape);
  Expr at_target = slope.with(c.b.broadcast_in_dim(c.b.reduce_sum(slope, {1}), shape, {0}));
  Expr gradient = select(Expr(c.b, m.rows.picked), -at_target, slope);
  Expr g(c.b, c.b.convert(args.tensor(0), gradient.dtype()));
  if (args.integer(6) == kNone) {
    g = g.with(c.b.broadcast_in_dim(c.b.reshape(g, {shape[0]}), shape, {0}));
  } else {
    g = spread(g.with(c.b.reshape(g, {})), shape);
    if (args.integer(6) == kMean) g = g / spread(g.with(c.b.extent(m.rows.scores, 0, g.dtype())), shape);
  }
  return {c.b.reshape((gradient * g).to(c.out().dtype), c.out().shape)};
}

}  // namespace

void add_margin_rows(Rows& rows);  // loss_margin.cc
void add_ctc_rows(Rows& rows);     // loss_ctc.cc

void add_loss_rows(Rows& rows) {
  rows.push_back({"aten::mse_loss", elementwise(mse)});
  rows.push_back({"aten::mse_loss_backward", elementwise_gradient(mse_derivative)});
  rows.push_back({"aten::smooth_l1_loss", elementwise(smooth_l1)});
  rows.push_back({"aten::smooth_l1_loss_backward", elementwise_gradient(smooth_l1_derivative)});
  rows.push_back({"aten::huber_loss", elementwise(huber)});
  rows.push_back({"aten::huber_loss_backward", elementwise_gradient(huber_derivative)});
  rows.push_back({"aten::soft_margin_loss", elementwise(soft_margin)});
  rows.push_back({"aten::soft_margin_loss_backward", elementwise_gradient(soft_margin_derivative)});
  rows.push_back(Row{"aten::binary_cross_entropy", binary_cross_entropy}.checking(
      "all elements of input should be between 0 and 1"));
  rows.push_back({"aten::binary_cross_entropy_backward", binary_cross_entropy_backward});
  rows.push_back({"aten::binary_cross_entropy_with_logits", binary_cross_entropy_with_logits});
  for (const char* name : {"aten::nll_loss_forward", "aten::nll_loss2d_forward"})
    rows.push_back(Row{name, nll_forward}.as_indexing());
  for (const char* name : {"aten::nll_loss_backward", "aten::nll_loss2d_backward"})
    rows.push_back({name, nll_backward});
  rows.push_back(Row{"aten::multi_margin_loss", multi_margin_loss}.as_indexing());
  rows.push_back({"aten::multi_margin_loss_backward", multi_margin_loss_backward});
  add_margin_rows(rows);
  add_ctc_rows(rows);
}

}  // namespace torch_tpu::ops
