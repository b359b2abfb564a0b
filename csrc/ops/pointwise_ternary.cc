// Functions of three operands, choices between operands, and clamping.
#include "ops/pointwise.h"

namespace torch_tpu::ops {
namespace {

Expr addcmul(Context&, const Exprs& x) { return x[0] + x[3] * x[1] * x[2]; }
Expr addcdiv(Context&, const Exprs& x) { return x[0] + x[3] * x[1] / x[2]; }

// The form whose rounding error vanishes at the end the weight is near to.
Expr lerp(Expr start, Expr end, Expr weight) {
  Expr distance = end - start;
  return select(abs(weight) < 0.5, start + weight * distance, end - distance * (1.0 - weight));
}

// Values are moved, not computed with: they stay in the result's dtype.
Values where(Context& c, const Args& args) {
  Expr condition = operand(c, args, 0, DType::kBool);
  return {select(condition, operand(c, args, 1, c.out().dtype), operand(c, args, 2, c.out().dtype))};
}

Values masked_fill(Context& c, const Args& args) {
  Expr mask = operand(c, args, 1, DType::kBool);
  return {select(mask, operand(c, args, 2, c.out().dtype), operand(c, args, 0, c.out().dtype))};
}

// Where the bounds cross the upper one wins; a NaN in any operand gives NaN.
Values clamp(Context& c, const Args& args) {
  Expr x = operand(c, args, 0);
  if (!args.none(1)) x = max(x, operand(c, args, 1));
  if (!args.none(2)) x = min(x, operand(c, args, 2));
  return result(c, x);
}

Values fill(Context& c, const Args& args) { return {operand(c, args, 1, c.out().dtype)}; }
Values zero(Context& c, const Args&) { return {c.b.zeros(c.out())}; }

// complex32 has no element type on any engine.
bool is_half_complex(Context& c) {
  if (is_complex(c.out().dtype)) return false;
  c.b.fail(ErrorCode::kNotImplemented, c.op + ": complex32 is not supported");
  return true;
}

Values complex(Context& c, const Args& args) {
  if (is_half_complex(c)) return {};
  DType part = real_of(c.out().dtype);
  return {c.b.complex(operand(c, args, 0, part), operand(c, args, 1, part))};
}

Values polar(Context& c, const Args& args) {
  if (is_half_complex(c)) return {};
  DType part = real_of(c.out().dtype);
  Expr length = operand(c, args, 0, part), angle = operand(c, args, 1, part);
  return {c.b.complex(length * cos(angle), length * sin(angle))};
}

}  // namespace

void add_ternary_rows(Rows& rows) {
  rows.insert(rows.end(), {
                              {"aten::addcmul", elementwise({0, 1, 2, 3}, addcmul)},
                              {"aten::addcdiv", elementwise({0, 1, 2, 3}, addcdiv)},
                              {"aten::lerp.Scalar", ternary(lerp)},
                              {"aten::lerp.Tensor", ternary(lerp)},
                              {"aten::where.self", where},
                              {"aten::masked_fill.Scalar", masked_fill},
                              {"aten::masked_fill.Tensor", masked_fill},
                              {"aten::clamp", clamp},
                              {"aten::clamp.Tensor", clamp},
                              {"aten::clamp_min", binary("maximum")},
                              {"aten::clamp_min.Tensor", binary("maximum")},
                              {"aten::clamp_max", binary("minimum")},
                              {"aten::clamp_max.Tensor", binary("minimum")},
                              Row{"aten::fill.Scalar", fill}.ignoring_self(),
                              Row{"aten::fill.Tensor", fill}.ignoring_self(),
                              Row{"aten::zero", zero}.ignoring_self(),
                              {"aten::complex", complex},
                              {"aten::polar", polar},
                          });
}

}  // namespace torch_tpu::ops
