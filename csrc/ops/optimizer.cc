// Fused optimizer steps and the gradient scaler's ops. Every number is an operand: a learning rate that changes every
// step compiles nothing.
//
// Formulas: torch.optim's own documentation (Adam: Kingma and Ba 2014; AdamW: Loshchilov and Hutter 2017; SGD with
// momentum: Sutskever et al. 2013; Adagrad: Duchi et al. 2011).
#include "ops/expr.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

// The operands that every fused step has, at positions that differ.
struct Step {
  Context& c;
  const Args& args;
  Value parameter, gradient;
  DType dtype;  // everything is computed in it

  Step(Context& c, const Args& args)
      : c(c),
        args(args),
        parameter(args.tensor(0)),
        gradient(args.tensor(1)),
        dtype(compute_dtype(parameter.dtype())) {}

  const Shape& shape() const { return parameter.shape(); }
  // A number: a double operand or a 0-d tensor (tensor_lr), as a 0-d f64 value.
  Expr number(size_t i) const {
    Value v = args.at(i).scalar.value ? args.at(i).scalar.value : args.tensor(i);
    return Expr(c.b, c.b.reshape(v, {})).to(DType::kF64);
  }
  Expr wide(Expr x) const { return x.with(as(c, x, dtype, shape())); }
  Expr tensor(size_t i) const { return {c.b, c.b.convert(args.tensor(i), dtype)}; }
  Value stored(Expr x, size_t i) const { return x.to(args.tensor(i).dtype()); }
};

// The gradient as the step uses it: unscaled, negated for maximize, with weight decay when it is not decoupled.
Expr prepared_gradient(const Step& s, size_t grad_scale, bool maximize) {
  Expr g(s.c.b, s.c.b.convert(s.gradient, s.dtype));
  if (s.args.tensor(grad_scale)) g = g / s.wide(Expr(s.c.b, s.c.b.reshape(s.args.tensor(grad_scale), {})));
  return maximize ? -g : g;
}

// With found_inf set nothing changes. `values` are new values of written arguments (absent: unchanged).
Values unless_found_inf(const Step& s, Values values, const std::vector<size_t>& positions, size_t found_inf) {
  const Value found = s.args.tensor(found_inf);
  if (!found) return values;
  Value skip = s.c.b.ne(s.c.b.reshape(found, {}), s.c.b.zeros({found.dtype(), {}}));
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i]) values[i] = s.c.b.select(skip, s.args.tensor(positions[i]), values[i]);
  return values;
}

// The unscaled gradient is written back, as PyTorch's kernels do; without a scale it stays.
Value written_gradient(const Step& s, Expr g, size_t grad_scale, bool maximize) {
  if (!s.args.tensor(grad_scale)) return {};
  return (maximize ? -g : g).to(s.gradient.dtype());
}

// (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, beta1, beta2, weight_decay, eps, amsgrad,
//  maximize, grad_scale, found_inf)
Rule adam(bool decoupled) {
  return [decoupled](Context& c, const Args& args) -> Values {
    Step s(c, args);
    Expr lr = s.number(6), beta1 = s.number(7), beta2 = s.number(8), decay = s.number(9), eps = s.number(10);
    const bool amsgrad = args.flag(11), maximize = args.flag(12);
    Expr p = s.tensor(0);
    const Expr unscaled = prepared_gradient(s, 13, maximize);
    Expr g = unscaled;
    if (decoupled)
      p = p * s.wide(1.0 - lr * decay);
    else
      g = g + p * s.wide(decay);
    Expr m = s.tensor(2), v = s.tensor(3);
    m = m + (g - m) * s.wide(1.0 - beta1);
    v = v * s.wide(beta2) + g * g * s.wide(1.0 - beta2);
    Expr step = Expr(c.b, c.b.reshape(args.tensor(5), {})).to(DType::kF64);
    Expr correction1 = 1.0 - pow(beta1, step);
    Expr correction2 = sqrt(1.0 - pow(beta2, step));
    Value highest;
    Expr second = v;
    if (amsgrad) {
      second = max(s.tensor(4), v);
      highest = s.stored(second, 4);
    }
    Expr denominator = sqrt(second) / s.wide(correction2) + s.wide(eps);
    p = p - s.wide(lr / correction1) * m / denominator;
    Values values{s.stored(p, 0), written_gradient(s, unscaled, 13, maximize), s.stored(m, 2), s.stored(v, 3)};
    std::vector<size_t> positions{0, 1, 2, 3};
    if (args.tensor(4)) {
      values.push_back(highest);
      positions.push_back(4);
    }
    return unless_found_inf(s, std::move(values), positions, 14);
  };
}

// (self, grads, momentum_buffer_list, *, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step,
//  grad_scale, found_inf)
Values sgd(Context& c, const Args& args) {
  Step s(c, args);
  Expr decay = s.number(3), momentum = s.number(4), lr = s.number(5), dampening = s.number(6);
  const bool nesterov = args.flag(7), maximize = args.flag(8), first = args.flag(9);
  Expr p = s.tensor(0);
  const Expr unscaled = prepared_gradient(s, 10, maximize);
  Expr g = unscaled + p * s.wide(decay);
  Values values{{}, written_gradient(s, unscaled, 10, maximize)};
  std::vector<size_t> positions{0, 1};
  if (args.tensor(2)) {
    Expr buffer = first ? g : s.tensor(2) * s.wide(momentum) + g * s.wide(1.0 - dampening);
    values.push_back(s.stored(buffer, 2));
    positions.push_back(2);
    g = nesterov ? g + buffer * s.wide(momentum) : buffer;
  }
  values[0] = s.stored(p - g * s.wide(lr), 0);
  return unless_found_inf(s, std::move(values), positions, 11);
}

// (self, grads, state_sums, state_steps, *, lr, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf).
// `counted`: the schema marks state_steps as written (the step itself is counted by torch.optim).
Rule adagrad(bool counted) {
  return [counted](Context& c, const Args& args) -> Values {
    Step s(c, args);
    Expr lr = s.number(4), lr_decay = s.number(5), decay = s.number(6), eps = s.number(7);
    const bool maximize = args.flag(8);
    Expr p = s.tensor(0);
    const Expr unscaled = prepared_gradient(s, 9, maximize);
    Expr g = unscaled + p * s.wide(decay);
    Expr step = Expr(c.b, c.b.reshape(args.tensor(3), {})).to(DType::kF64);
    Expr rate = lr / ((step - 1.0) * lr_decay + 1.0);
    Expr sum = s.tensor(2) + g * g;
    p = p - s.wide(rate) * g / (sqrt(sum) + s.wide(eps));
    Values values{s.stored(p, 0), written_gradient(s, unscaled, 9, maximize), s.stored(sum, 2)};
    if (counted) values.push_back({});
    return unless_found_inf(s, std::move(values), {0, 1, 2, 3}, 10);
  };
}

// --- gradient scaler
// -----------------------------------------------------------------------------------------------------

// (self, found_inf, inv_scale), tensor by tensor.
Values check_and_unscale(Context& c, const Args& args) {
  const Value g = args.tensor(0), found = args.tensor(1);
  const DType dtype = compute_dtype(g.dtype());
  Expr x(c.b, c.b.convert(g, dtype));
  Dims dims;
  for (int64_t i = 0; i < g.rank(); ++i) dims.push_back(i);
  Value bad = c.b.logical_not(c.b.unary("is_finite", x));
  Value any = c.b.reduce(bad, c.b.zeros({DType::kBool, {}}), dims, "or");
  Value flag = c.b.select(c.b.broadcast(any, found.shape()), c.b.ones_like(found), found);
  Expr scaled = x * x.with(as(c, c.b.reshape(args.tensor(2), {}), dtype, g.shape()));
  return {scaled.to(g.dtype()), flag};
}

// (self, growth_tracker, found_inf, scale_growth_factor, scale_backoff_factor, growth_interval)
Values update_scale(Context& c, const Args& args) {
  Expr scale(c.b, args.tensor(0)), tracker(c.b, args.tensor(1));
  auto like_scale = [&](Expr x) { return x.with(as(c, x, scale.dtype(), scale.value().shape())); };
  Expr growth(c.b, args.at(3).scalar.value), backoff(c.b, args.at(4).scalar.value);
  Expr found = Expr(c.b, c.b.reshape(args.tensor(2), {})) != 0.0;
  Expr count = tracker + 1.0;
  Expr due = count == tracker.with(c.b.constant_int(tracker.value().type(), args.integer(5)));
  Expr grown = scale * like_scale(growth);
  // A scale that would overflow stays.
  Expr next =
      select(scale.with(c.b.logical_and(c.b.reshape(due, scale.value().shape()), c.b.unary("is_finite", grown))), grown,
             scale);
  Expr zero = tracker.like(0);
  return {c.b.select(found, scale * like_scale(backoff), next), c.b.select(found, zero, select(due, zero, count))};
}

}  // namespace

void add_optimizer_rows(Rows& rows) {
  for (const char* suffix : {"", ".tensor_lr"}) {
    const std::string s = suffix;
    rows.push_back(Row{"aten::_fused_adam_" + s, adam(false)}.as_per_element().with_double_operands());
    rows.push_back(Row{"aten::_fused_adamw_" + s, adam(true)}.as_per_element().with_double_operands());
    rows.push_back(Row{"aten::_fused_sgd_" + s, sgd}.as_per_element().with_double_operands());
    rows.push_back(Row{"aten::_fused_adagrad_" + s, adagrad(s.empty())}.as_per_element().with_double_operands());
  }
  rows.push_back(Row{"aten::_amp_foreach_non_finite_check_and_unscale_", check_and_unscale}.as_per_element());
  rows.push_back(Row{"aten::_amp_update_scale_", update_scale}.with_double_operands());
}

}  // namespace torch_tpu::ops
