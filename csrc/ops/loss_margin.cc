// The multi-label margin loss: every target class should beat every other class by one.
#include "ops/expr.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };  // at::Reduction

// N rows, C classes; a row's targets end at its first negative entry.
struct Labels {
  int64_t rows, classes;
  Expr scores;      // [N, C]
  Value named;      // bool [N, J, C]: target j of the row is class c
  Value is_target;  // bool [N, C]
  Expr gap;         // 1 - x[target j] + x[c] where positive and c is no target, else 0: [N, J, C]
};

Labels labels(Context& c, Value self, Value target) {
  const DType dtype = compute_dtype(self.dtype());
  const int64_t classes = self.rank() == 0 ? 1 : self.dim(-1);
  const int64_t rows = self.numel() / classes;
  Labels l{rows, classes, {c.b, c.b.reshape(c.b.convert(self, dtype), {rows, classes})}, {}, {}, {c.b, {}}};
  target = c.b.reshape(c.b.convert(target, DType::kI64), {rows, classes});
  Value too_large = c.b.ge(target, c.b.constant_int(target.type(), classes));
  c.check_index(c.b.logical_or(too_large, c.b.lt(target, c.b.constant_int(target.type(), -1))));
  Value position = c.b.iota(target.type(), 1);
  Value negative = c.b.lt(target, c.b.zeros_like(target));
  Value end = c.b.reduce_min(c.b.select(negative, position, c.b.max_value(target.type())), {1});
  Value counts = c.b.lt(position, c.b.broadcast_in_dim(end, target.shape(), {0}));
  const Shape cube{rows, classes, classes};
  auto over_classes = [&](Value x) { return c.b.broadcast_in_dim(x, cube, {0, 1}); };
  auto over_targets = [&](Value x) { return c.b.broadcast_in_dim(x, cube, {0, 2}); };
  Value same = c.b.eq(over_classes(target), c.b.iota({DType::kI64, cube}, 2));
  l.named = c.b.logical_and(same, over_classes(counts));
  l.is_target = c.b.reduce(l.named, c.b.zeros({DType::kBool, {}}), {1}, "or");
  Expr x = l.scores.with(over_targets(l.scores));
  Expr own = x.with(c.b.reduce_sum(select(Expr(c.b, l.named), x, 0.0), {2}));
  Expr gap = max(1.0 - x.with(over_classes(own)) + x, 0.0);
  Value apply = c.b.logical_and(over_classes(counts), c.b.logical_not(over_targets(l.is_target)));
  l.gap = select(Expr(c.b, apply), gap, 0.0);
  return l;
}

// (self, target, reduction) -> output, is_target
Values multilabel_margin_loss(Context& c, const Args& args) {
  if (args.tensor(0).numel() == 0) return {c.b.zeros(c.out(0)), c.b.zeros(c.out(1))};
  const Labels l = labels(c, args.tensor(0), args.tensor(1));
  const int64_t reduction = args.integer(2);
  Expr loss = l.gap.with(c.b.reduce_sum(l.gap, reduction == kNone ? Dims{1, 2} : Dims{0, 1, 2}));
  loss = loss / opaque_like(loss, static_cast<double>(reduction == kMean ? l.classes * l.rows : l.classes));
  return {c.b.reshape(loss.to(c.out(0).dtype), c.out(0).shape),
          c.b.reshape(c.b.convert(l.is_target, c.out(1).dtype), c.out(1).shape)};
}

// (grad, self, target, reduction, is_target)
Values multilabel_margin_loss_backward(Context& c, const Args& args) {
  if (args.tensor(1).numel() == 0) return {c.b.zeros(c.out())};
  const Labels l = labels(c, args.tensor(1), args.tensor(2));
  Expr active = Expr(c.b, l.gap > 0.0).to(l.scores.dtype());
  Expr beaten = active.with(c.b.reduce_sum(active, {2}));  // [N, J]: classes that target j does not beat
  Expr spread = active.with(c.b.broadcast_in_dim(beaten, l.gap.value().shape(), {0, 1}));
  Expr pulled = active.with(c.b.reduce_sum(select(Expr(c.b, l.named), spread, 0.0), {1}));
  Expr slope = active.with(c.b.reduce_sum(active, {1})) - pulled;
  const Shape& shape = l.scores.value().shape();
  Expr g(c.b, c.b.convert(args.tensor(0), slope.dtype()));
  const bool per_row = args.integer(3) == kNone;
  g = per_row ? g.with(c.b.broadcast_in_dim(c.b.reshape(g, {l.rows}), shape, {0}))
              : g.with(c.b.broadcast(c.b.reshape(g, {}), shape));
  slope = slope / opaque_like(slope, static_cast<double>(args.integer(3) == kMean ? l.classes * l.rows : l.classes));
  return {c.b.reshape((slope * g).to(c.out().dtype), c.out().shape)};
}

}  // namespace

void add_margin_rows(Rows& rows);  // called by loss.cc

void add_margin_rows(Rows& rows) {
  rows.push_back(Row{"aten::multilabel_margin_loss_forward", multilabel_margin_loss}.as_indexing());
  rows.push_back({"aten::multilabel_margin_loss_backward", multilabel_margin_loss_backward});
}

}  // namespace torch_tpu::ops
