// Activation functions and their derivatives. x is the input, g the gradient of the result, y the saved result.
#include <numbers>

#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

using std::numbers::inv_sqrtpi;
using std::numbers::sqrt2;

// tanh approximation of gelu: sqrt(2 / pi) * (x + kCubic * x^3).
constexpr double kTanhScale = sqrt2 * inv_sqrtpi;
constexpr double kCubic = 0.044715;

bool tanh_form(Context& c, const Args& args, size_t i) {
  const std::string form = args.string_or(i, "none");
  if (form != "none" && form != "tanh") c.fail("approximate argument must be either none or tanh.");
  return form == "tanh";
}

Values gelu(Context& c, const Args& args) {
  Expr x = operand(c, args, 0);
  if (!tanh_form(c, args, 1)) return result(c, x * 0.5 * (1.0 + erf(x * (1 / sqrt2))));
  return result(c, 0.5 * x * (1.0 + tanh(kTanhScale * (x + kCubic * x * x * x))));
}

Values gelu_backward(Context& c, const Args& args) {
  Expr g = operand(c, args, 0), x = operand(c, args, 1);
  if (!tanh_form(c, args, 2)) {
    Expr cdf = 0.5 * (1.0 + erf(x * (1 / sqrt2)));
    Expr density = exp(-0.5 * x * x) * (inv_sqrtpi / sqrt2);
    return result(c, g * (cdf + x * density));
  }
  Expr t = tanh(kTanhScale * (x + kCubic * x * x * x));
  Expr inner = kTanhScale * (1.0 + 3 * kCubic * x * x);
  return result(c, g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner));
}

Expr relu(Expr x) { return is_unsigned_integer(x.dtype()) ? x : max(x, 0); }

Expr elu(Context&, const Exprs& v) {
  Expr x = v[0], alpha = v[1], scale = v[2], input_scale = v[3];
  return select(x < 0, expm1(x * input_scale) * (alpha * scale), x * scale);
}

Values elu_backward(Context& c, const Args& args) {
  Expr g = operand(c, args, 0), alpha = operand(c, args, 1), scale = operand(c, args, 2);
  Expr input_scale = operand(c, args, 3), v = operand(c, args, 5);
  Expr negative = alpha * scale;
  // From the result y: y + negative = negative * exp(x * input_scale).
  Expr slope = args.flag(4) ? input_scale * (v + negative) : input_scale * negative * exp(v * input_scale);
  return result(c, g * select(v <= 0, slope, scale));
}

Expr softplus(Context&, const Exprs& v) {
  Expr scaled = v[0] * v[1];
  return select(scaled > v[2], v[0], log1p(exp(scaled)) / v[1]);
}

Expr softplus_backward(Context&, const Exprs& v) {
  Expr scaled = v[1] * v[2];
  return select(scaled > v[3], v[0], v[0] * logistic(scaled));
}

Expr mish(Expr x) { return x * tanh(log1p(exp(x))); }

Expr mish_backward(Expr g, Expr x) {
  Expr s = logistic(x);
  Expr t = tanh(select(x > 20, x, log1p(exp(x))));
  return g * (t + x * s * (1.0 - t * t));
}

Expr silu(Expr x) { return x * sigmoid(x); }

Expr silu_backward(Expr g, Expr x) {
  Expr s = sigmoid(x);
  return g * conj(s * (1.0 + x * (1.0 - s)));
}

Expr sigmoid_backward(Expr g, Expr y) { return g * conj((1.0 - y) * y); }
Expr tanh_backward(Expr g, Expr y) { return g * conj(1.0 - y * y); }

Expr shrink_range(Expr x, Expr bound) { return (x >= -bound) & (x <= bound); }
Expr hardshrink(Expr x, Expr bound) { return select(shrink_range(x, bound), 0.0, x); }
Expr softshrink(Expr x, Expr bound) { return select(shrink_range(x, bound), 0.0, select(x > 0, x - bound, x + bound)); }
Expr shrink_backward(Expr g, Expr x, Expr bound) { return select(shrink_range(x, bound), 0.0, g); }

Expr threshold(Expr x, Expr bound, Expr value) { return select(x <= bound, value, x); }
Expr threshold_backward(Expr g, Expr x, Expr bound) { return select(x <= bound, 0.0, g); }

Expr leaky_relu(Expr x, Expr slope) { return select(x > 0, x, x * slope); }
Expr leaky_relu_backward(Expr g, Expr x, Expr slope) { return select(x > 0, g, g * slope); }

Expr relu6(Expr x) { return min(max(x, 0), 6); }
Expr hardsigmoid(Expr x) { return relu6(x + 3) / 6; }
Expr hardsigmoid_backward(Expr g, Expr x) { return select((x > -3) & (x < 3), g / 6, 0.0); }
Expr hardswish(Expr x) { return x * relu6(x + 3) / 6; }
Expr hardswish_backward(Expr g, Expr x) { return select(x <= -3, 0.0, select(x < 3, g * (x / 3 + 0.5), g)); }
Expr hardtanh(Expr x, Expr low, Expr high) { return min(max(x, low), high); }
Expr hardtanh_backward(Context&, const Exprs& v) { return select((v[1] <= v[2]) | (v[1] >= v[3]), 0.0, v[0]); }

Expr log_sigmoid(Expr x) { return min(x, 0) - log1p(exp(-abs(x))); }

// The second result is exp(-|x|), what PyTorch's CPU kernel saves; a device may leave it empty.
Values log_sigmoid_forward(Context& c, const Args& args) {
  Expr x = operand(c, args, 0);
  const Type& saved = c.out(1);
  if (saved.shape != c.out().shape) return {result(c, log_sigmoid(x))[0], c.b.zeros(saved)};
  return {result(c, log_sigmoid(x))[0], c.b.convert(exp(-abs(x)), saved.dtype)};
}

Expr log_sigmoid_backward(Expr g, Expr x) { return g * logistic(-x); }

Values logit(Context& c, const Args& args) {
  Expr x = operand(c, args, 0);
  if (!args.none(1)) {
    const double eps = args.number(1);
    x = select(x < eps, eps, select(x > 1 - eps, 1 - eps, x));
  }
  return result(c, log(x / (1.0 - x)));
}

Values logit_backward(Context& c, const Args& args) {
  Expr g = operand(c, args, 0), x = operand(c, args, 1);
  const double eps = args.number_or(2, 0);
  const double outside = args.none(2) ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  return result(c, select((x < eps) | (x > 1 - eps), outside, g / (x * (1.0 - x))));
}

// The two halves of argument i along `dim`, in the compute dtype.
std::pair<Expr, Expr> halves(Context& c, const Args& args, size_t i, int64_t dim) {
  Value x = args.tensor(i);
  dim = wrap_dim(dim, x.rank());
  const int64_t half = x.dim(dim) / 2;
  x = c.b.convert(x, compute_dtype(x.dtype()));
  return {{c.b, c.b.slice_dim(x, dim, 0, half)}, {c.b, c.b.slice_dim(x, dim, half, 2 * half)}};
}

Values glu(Context& c, const Args& args) {
  auto [a, b] = halves(c, args, 0, args.integer_or(1, -1));
  return result(c, a * logistic(b));
}

Values glu_backward(Context& c, const Args& args) {
  auto [a, b] = halves(c, args, 1, args.integer(2));
  Expr g{c.b, c.b.convert(args.tensor(0), a.dtype())};
  Expr s = logistic(b);
  return result(c, {c.b, c.b.concatenate({g * s, g * a * s * (1.0 - s)}, wrap_dim(args.integer(2), a.value().rank()))});
}

Values glu_jvp(Context& c, const Args& args) {
  auto [a, b] = halves(c, args, 1, args.integer(3));
  auto [da, db] = halves(c, args, 2, args.integer(3));
  Expr s = logistic(b);
  return result(c, da * s + operand(c, args, 0) * (1.0 - s) * db);
}

Values prelu_backward(Context& c, const Args& args) {
  Expr g = operand(c, args, 0), x = operand(c, args, 1), weight = operand(c, args, 2);
  return {result(c, select(x > 0, g, weight * g))[0], c.b.convert(select(x > 0, 0.0, x * g), c.out(1).dtype)};
}

}  // namespace

void add_activation_rows(Rows& rows) {
  rows.insert(rows.end(), {
                              {"aten::_prelu_kernel", binary(leaky_relu)},
                              {"aten::_prelu_kernel_backward", prelu_backward},
                              {"aten::elu", elementwise({0, 1, 2, 3}, elu)},
                              {"aten::elu_backward", elu_backward},
                              {"aten::gelu", gelu},
                              {"aten::gelu_backward", gelu_backward},
                              {"aten::hardshrink", binary(hardshrink)},
                              {"aten::hardshrink_backward", ternary(shrink_backward)},
                              {"aten::hardsigmoid", unary(hardsigmoid)},
                              {"aten::hardsigmoid_backward", binary(hardsigmoid_backward)},
                              {"aten::hardswish", unary(hardswish)},
                              {"aten::hardswish_backward", binary(hardswish_backward)},
                              {"aten::hardtanh", ternary(hardtanh)},
                              {"aten::hardtanh_backward", elementwise({0, 1, 2, 3}, hardtanh_backward)},
                              {"aten::leaky_relu", binary(leaky_relu)},
                              {"aten::leaky_relu_backward", ternary(leaky_relu_backward)},
                              {"aten::log_sigmoid_backward", binary(log_sigmoid_backward)},
                              {"aten::log_sigmoid_forward", log_sigmoid_forward},
                              {"aten::logit", logit},
                              {"aten::logit_backward", logit_backward},
                              {"aten::mish", unary(mish)},
                              {"aten::mish_backward", binary(mish_backward)},
                              {"aten::relu", unary(relu)},
                              {"aten::sigmoid_backward", binary(sigmoid_backward)},
                              {"aten::silu", unary(silu)},
                              {"aten::silu_backward", binary(silu_backward)},
                              {"aten::softplus", elementwise({0, 1, 2}, softplus)},
                              {"aten::softplus_backward", elementwise({0, 1, 2, 3}, softplus_backward)},
                              {"aten::softshrink", binary(softshrink)},
                              {"aten::softshrink_backward", ternary(shrink_backward)},
                              {"aten::tanh_backward", binary(tanh_backward)},
                              {"aten::threshold", ternary(threshold)},
                              {"aten::threshold_backward", ternary(threshold_backward)},
                          });
}

// glu halves a dimension, so it is no pointwise row.
void add_gated_rows(Rows& rows) {
  rows.insert(rows.end(), {
                              {"aten::glu", glu},
                              {"aten::glu_backward", glu_backward},
                              {"aten::glu_jvp", glu_jvp},
                          });
}

}  // namespace torch_tpu::ops
