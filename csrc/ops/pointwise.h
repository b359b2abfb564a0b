// The families that pointwise rows are made of. Every family converts its operands, broadcasts them to the result's
// shape, computes, and converts back once: f16 and bf16 compute in f32, as PyTorch's CPU kernels do.
#pragma once

#include <functional>
#include <string>

#include "ops/expr.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {

using Exprs = std::vector<Expr>;
using UnaryBody = std::function<Expr(Expr)>;
using BinaryBody = std::function<Expr(Expr, Expr)>;
using TernaryBody = std::function<Expr(Expr, Expr, Expr)>;
using Body = std::function<Expr(Context&, const Exprs&)>;

// Argument i in the dtype the result computes in, broadcast to the result's shape.
Expr operand(Context& c, const Args& args, size_t i);
// Argument i in `dtype`, broadcast to the result's shape.
Expr operand(Context& c, const Args& args, size_t i, DType dtype);
// The single result, converted to the inferred type.
Values result(Context& c, Expr x);

// Any number of operands, by argument position: tensors and Scalars alike.
Rule elementwise(std::vector<size_t> which, Body body);
Rule unary(UnaryBody body);
// By op name, "sine" or "chlo.erf".
Rule unary(std::string op);
// The operand keeps its own dtype.
Rule unary_exact(UnaryBody body);
// Identity on integers and bools, `body` on the rest: rounding functions.
Rule rounding(UnaryBody body);
Rule binary(BinaryBody body);
Rule binary(std::string op);
Rule ternary(TernaryBody body);
// Compared in the common dtype of both arguments.
Rule compare(hlo::Compare direction);
// Both arguments as bools.
Rule logical(std::string op);

// Shared formulas.
Expr sign_bit(Expr x);  // bool; true for -0.0 and negative NaN
Expr copy_sign(Expr magnitude, Expr sign);
Expr next_after(Expr x, Expr y);                                   // std::nextafter for every float dtype
Expr sigmoid(Expr x);                                              // real and complex
Expr polynomial(Expr x, const std::vector<double>& coefficients);  // highest power first
Expr floor_divide(Expr x, Expr y);                                 // PyTorch's div(rounding_mode="floor")
Expr remainder(Expr x, Expr y);                                    // the sign of the divisor
// sum of (q + k)^-s for k >= 0, s > 1; a negative q is shifted up term by term (chlo's series starts above zero).
Expr hurwitz_zeta(Expr s, Expr q);
// x = mantissa * 2^exponent with mantissa in [0.5, 1); zero, inf and NaN give exponent 0. Exponent is i32.
std::pair<Expr, Expr> split_exponent(Expr x);

// The files that together are add_pointwise_rows.
void add_unary_rows(Rows& rows);
void add_binary_rows(Rows& rows);
void add_ternary_rows(Rows& rows);
void add_activation_rows(Rows& rows);
void add_gated_rows(Rows& rows);  // not pointwise: they halve a dimension
void add_special_rows(Rows& rows);
void add_polynomial_rows(Rows& rows);

}  // namespace torch_tpu::ops
