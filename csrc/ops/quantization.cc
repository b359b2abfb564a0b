// Fake quantization: values rounded to the grid of an integer type and scaled back, with the mask of those that the
// grid holds, through which gradients pass.
#include <limits>

#include "ops/expr.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

// The grid of a call, in x's shape: the scale in float32, the zero point in x's dtype.
struct Grid {
  Expr scale, zero_point;
  double low, high;
  // A zero point that is no integer is added before rounding.
  bool rounds_last = false;
};

// output, mask
Values quantize(Context& c, Expr x, const Grid& grid) {
  Expr scale = grid.scale.to(x.dtype());
  // The scale and its inverse are float32 for float64 inputs too.
  Expr scaled = x * (opaque_like(grid.scale, 1) / grid.scale).to(x.dtype());
  Expr level = grid.rounds_last ? call("round_nearest_even", scaled + grid.zero_point)
                                : call("round_nearest_even", scaled) + grid.zero_point;
  // As the CPU, which converts to an integer here: NaN becomes the lowest one.
  level = select(is_nan(level), -std::numeric_limits<double>::infinity(), level);
  Expr mask = (level >= grid.low) & (level <= grid.high);
  Expr output = (min(max(level, grid.low), grid.high) - grid.zero_point) * scale;
  return {output.to(c.out(0).dtype), mask};
}

Expr spread(Expr x, Value v, DType dtype) {
  return x.with(x.b().broadcast(x.b().convert(x.b().reshape(v, {}), dtype), x.value().shape()));
}

// (self, scale, zero_point, quant_min, quant_max): the scale is a float32 number.
Values per_tensor(Context& c, const Args& args) {
  Expr x(c.b, c.b.convert(args.tensor(0), compute_dtype(args.tensor(0).dtype())));
  return quantize(c, x,
                  {spread(x, args.scalar(1), DType::kF32), x.like(static_cast<double>(args.integer(2))),
                   static_cast<double>(args.integer(3)), static_cast<double>(args.integer(4))});
}

// (self, scale, zero_point, fake_quant_enabled, quant_min, quant_max): tensors of one element.
Values per_tensor_of_tensors(Context& c, const Args& args) {
  Expr x(c.b, c.b.convert(args.tensor(0), compute_dtype(args.tensor(0).dtype())));
  Values r = quantize(c, x,
                      {spread(x, args.tensor(1), DType::kF32), spread(x, args.tensor(2), x.dtype()),
                       static_cast<double>(args.integer(4)), static_cast<double>(args.integer(5))});
  Value enabled = c.b.convert(c.b.reshape(args.tensor(3), {}), DType::kBool);
  return {c.b.select(enabled, r[0], args.tensor(0)), c.b.select(enabled, r[1], c.b.ones_like(r[1]))};
}

// (self, scale, zero_point, axis, quant_min, quant_max): one scale and zero point for each index along axis.
Values per_channel(Context& c, const Args& args) {
  Expr x(c.b, c.b.convert(args.tensor(0), compute_dtype(args.tensor(0).dtype())));
  const int64_t axis = wrap_dim(args.integer(3), x.value().rank());
  auto along = [&](Value v, DType dtype) {
    return x.with(c.b.broadcast_in_dim(c.b.convert(v, dtype), x.value().shape(), {axis}));
  };
  const auto low = static_cast<double>(args.integer(4)), high = static_cast<double>(args.integer(5));
  const bool rounds_last = is_float(args.tensor(2).dtype());
  if (!rounds_last) {
    Expr zero_point(c.b, args.tensor(2));
    c.check_index((zero_point < low) | (zero_point > high));
  }
  return quantize(c, x, {along(args.tensor(1), DType::kF32), along(args.tensor(2), x.dtype()), low, high, rounds_last});
}

}  // namespace

void add_quantization_rows(Rows& rows) {
  rows.push_back(Row{"aten::fake_quantize_per_tensor_affine_cachemask", per_tensor}.with_double_operands());
  rows.push_back({"aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", per_tensor_of_tensors});
  rows.push_back(Row{"aten::fake_quantize_per_channel_affine_cachemask", per_channel}.checking(
      "`zero_point` must be between `quant_min` and `quant_max`."));
}

}  // namespace torch_tpu::ops
