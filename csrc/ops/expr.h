// Arithmetic on StableHLO values written as C++ expressions: `x * logistic(x)`. A number in an expression becomes a
// constant of the other operand's type. Operands must have equal types, as in hlo/builder.h.
#pragma once

#include <cmath>

#include "hlo/builder.h"

namespace torch_tpu::ops {

class Expr {
 public:
  Expr(hlo::Builder& builder, hlo::Value value) : builder_(&builder), value_(value) {}
  hlo::Builder& b() const { return *builder_; }
  hlo::Value value() const { return value_; }
  operator hlo::Value() const { return value_; }  // NOLINT(google-explicit-constructor)
  DType dtype() const { return value_.dtype(); }
  Expr with(hlo::Value v) const { return {*builder_, v}; }
  // A constant of this type.
  Expr like(double v) const {
    if (is_complex(dtype())) return with(builder_->constant_complex(value_.type(), v));
    if (is_float(dtype())) return with(builder_->constant(value_.type(), v));
    return with(builder_->constant_int(value_.type(), static_cast<int64_t>(v)));
  }
  Expr to(DType dtype) const { return with(builder_->convert(value_, dtype)); }

 private:
  hlo::Builder* builder_;
  hlo::Value value_;
};

inline Expr call(std::string_view op, Expr x) { return x.with(x.b().unary(op, x)); }
inline Expr call(std::string_view op, Expr x, Expr y) { return x.with(x.b().binary(op, x, y)); }

#define TORCH_TPU_EXPR_OPERATOR(SYMBOL, METHOD)                                                      \
  inline Expr operator SYMBOL(Expr x, Expr y) { return x.with(x.b().METHOD(x.value(), y.value())); } \
  inline Expr operator SYMBOL(Expr x, double y) { return x SYMBOL x.like(y); }                       \
  inline Expr operator SYMBOL(double x, Expr y) { return y.like(x) SYMBOL y; }
TORCH_TPU_EXPR_OPERATOR(+, add)
TORCH_TPU_EXPR_OPERATOR(-, sub)
TORCH_TPU_EXPR_OPERATOR(*, mul)
TORCH_TPU_EXPR_OPERATOR(/, div)
TORCH_TPU_EXPR_OPERATOR(%, rem)
TORCH_TPU_EXPR_OPERATOR(==, eq)
TORCH_TPU_EXPR_OPERATOR(!=, ne)
TORCH_TPU_EXPR_OPERATOR(<, lt)
TORCH_TPU_EXPR_OPERATOR(<=, le)
TORCH_TPU_EXPR_OPERATOR(>, gt)
TORCH_TPU_EXPR_OPERATOR(>=, ge)
#undef TORCH_TPU_EXPR_OPERATOR

inline Expr operator-(Expr x) { return x.with(x.b().neg(x)); }
// Bitwise on integers, logical on bools.
inline Expr operator&(Expr x, Expr y) { return call("and", x, y); }
inline Expr operator|(Expr x, Expr y) { return call("or", x, y); }
inline Expr operator^(Expr x, Expr y) { return call("xor", x, y); }
inline Expr operator!(Expr x) { return call("not", x); }
inline Expr operator~(Expr x) { return call("not", x); }

// A 0-d x, hidden from constant folding. Engines replace a division by a constant with a product by its reciprocal,
// which is off by one rounding (the mean of 41 ones would not be 1); a hidden divisor is divided by.
inline Expr opaque(Expr x) { return x.with(x.b().optimization_barrier({x.value()})[0]); }
// v in every element of x's shape, hidden.
inline Expr opaque_like(Expr x, double v) {
  const hlo::Type type{x.dtype(), {}};
  Expr number = opaque(x.with(is_complex(x.dtype()) ? x.b().constant_complex(type, v) : x.b().constant(type, v)));
  return x.with(x.b().broadcast(number, x.value().shape()));
}

inline Expr select(Expr pred, Expr x, Expr y) { return x.with(x.b().select(pred, x, y)); }
inline Expr select(Expr pred, Expr x, double y) { return select(pred, x, x.like(y)); }
inline Expr select(Expr pred, double x, Expr y) { return select(pred, y.like(x), y); }

inline Expr max(Expr x, Expr y) { return x.with(x.b().max(x, y)); }
inline Expr max(Expr x, double y) { return max(x, x.like(y)); }
inline Expr min(Expr x, Expr y) { return x.with(x.b().min(x, y)); }
inline Expr min(Expr x, double y) { return min(x, x.like(y)); }
inline Expr pow(Expr x, Expr y) { return x.with(x.b().pow(x, y)); }
inline Expr exp(Expr x) { return call("exponential", x); }
inline Expr expm1(Expr x) { return call("exponential_minus_one", x); }
inline Expr log(Expr x) { return call("log", x); }
inline Expr log1p(Expr x) { return call("log_plus_one", x); }
inline Expr sqrt(Expr x) { return call("sqrt", x); }
inline Expr rsqrt(Expr x) { return call("rsqrt", x); }
inline Expr sin(Expr x) { return call("sine", x); }
inline Expr cos(Expr x) { return call("cosine", x); }
inline Expr tanh(Expr x) { return call("tanh", x); }
inline Expr floor(Expr x) { return call("floor", x); }
inline Expr ceil(Expr x) { return call("ceil", x); }
inline Expr abs(Expr x) { return call("abs", x); }
inline Expr logistic(Expr x) { return call("logistic", x); }
inline Expr erf(Expr x) { return call("chlo.erf", x); }
inline Expr lgamma(Expr x) { return call("chlo.lgamma", x); }
inline Expr is_nan(Expr x) { return x.with(x.b().is_nan(x)); }
inline Expr real(Expr x) { return x.with(x.b().real(x)); }
inline Expr imag(Expr x) { return x.with(x.b().imag(x)); }
inline Expr conj(Expr x) { return is_complex(x.dtype()) ? x.with(x.b().complex(real(x), -imag(x))) : x; }

// Keeps the sign of zero, as std::trunc does.
inline Expr trunc(Expr x) { return call("sign", x) * floor(abs(x)); }

}  // namespace torch_tpu::ops
