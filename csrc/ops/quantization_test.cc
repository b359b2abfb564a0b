#include <gtest/gtest.h>

#include "ops/rule_testing.h"

namespace torch_tpu::ops {
namespace {

using testing::RuleCall;

void expect_ok(const Result<std::string>& module) {
  EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().message);
}

TEST(FakeQuantization, ScalesAreOperands) {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    const Type x{dtype, {3, 4}}, mask{DType::kBool, {3, 4}};
    expect_ok(RuleCall("aten::fake_quantize_per_tensor_affine_cachemask")
                  .tensor(dtype, x.shape)
                  .scalar()
                  .integer(0)
                  .integer(-128)
                  .integer(127)
                  .module({x, mask}));
    expect_ok(RuleCall("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
                  .tensor(dtype, x.shape)
                  .tensor(DType::kF32, {1})
                  .tensor(DType::kI32, {})
                  .tensor(DType::kI64, {1})
                  .integer(0)
                  .integer(255)
                  .module({x, mask}));
  }
}

TEST(FakeQuantization, IntegerZeroPointsAreChecked) {
  const Type x{DType::kF32, {3, 4}}, mask{DType::kBool, {3, 4}};
  for (DType zero_point : {DType::kI32, DType::kF32}) {
    RuleCall call("aten::fake_quantize_per_channel_affine_cachemask");
    call.tensor(x.dtype, x.shape).tensor(DType::kF32, {4}).tensor(zero_point, {4}).integer(1).integer(-8).integer(7);
    if (zero_point == DType::kI32) call.checking_indices();
    expect_ok(call.module({x, mask}));
  }
}

}  // namespace
}  // namespace torch_tpu::ops
