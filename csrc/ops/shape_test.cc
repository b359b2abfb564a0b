#include "ops/shape.h"

#include <gtest/gtest.h>

#include "ops/rule_testing.h"

namespace torch_tpu::ops {
namespace {

using testing::RuleCall;

void expect_ok(const Result<std::string>& module, const std::string& what) {
  EXPECT_TRUE(module.ok()) << what << ": " << (module.ok() ? "" : module.error().message);
}

TEST(Shapes, CatPromotesAndSkipsLegacyEmpties) {
  const Type a{DType::kI64, {2, 3}}, b{DType::kF32, {1, 3}}, legacy{DType::kF32, {0}};
  expect_ok(RuleCall("aten::cat").tensors({legacy, a, b, a}).integer(-2).module({{DType::kF32, {5, 3}}}), "cat");
  expect_ok(RuleCall("aten::cat").tensors({legacy, legacy}).integer(0).module({legacy}), "cat of nothing");
  expect_ok(RuleCall("aten::stack").tensors({a, a}).integer(-1).module({{DType::kI64, {2, 3, 2}}}), "stack");
}

TEST(Shapes, MovesBuildForZeroSizes) {
  const DType f = DType::kF32;
  for (const Shape& shape : {Shape{2, 3}, Shape{0, 3}}) {
    expect_ok(RuleCall("aten::flip").tensor(f, shape).ints({0, -1}).module({{f, shape}}), "flip");
    expect_ok(RuleCall("aten::roll").tensor(f, shape).ints({5}).ints({}).module({{f, shape}}), "roll");
    expect_ok(RuleCall("aten::repeat").tensor(f, shape).ints({2, 1, 3}).module({{f, {2, shape[0], 9}}}), "repeat");
    expect_ok(RuleCall("aten::constant_pad_nd")
                  .tensor(f, shape)
                  .ints({1, -1, 2, 0})
                  .scalar()
                  .module({{f, {shape[0] + 2, 3}}}),
              "pad");
  }
}

TEST(Shapes, DiagonalsInAnyOrderOfDimensions) {
  for (int64_t offset : {-1, 0, 1}) {
    expect_ok(RuleCall("aten::diag_embed")
                  .tensor(DType::kF32, {2, 3})
                  .integer(offset)
                  .integer(2)
                  .integer(0)
                  .module({{DType::kF32, {3 + std::abs(offset), 2, 3 + std::abs(offset)}}}),
              "diag_embed");
  }
  RuleCall backward("aten::diagonal_backward");
  backward.tensor(DType::kF32, {5, 3}).ints({3, 5, 4}).integer(1).integer(0).integer(2);
  expect_ok(backward.module({{DType::kF32, {3, 5, 4}}}), "diagonal_backward");
}

TEST(Shapes, WindowsAndDistances) {
  const DType f = DType::kF32;
  RuleCall unfold("aten::im2col");
  unfold.tensor(f, {2, 3, 7, 8}).ints({3, 2}).ints({1, 2}).ints({1, 0}).ints({2, 1});
  expect_ok(unfold.module({{f, {2, 18, 24}}}), "im2col");
  RuleCall fold("aten::col2im");
  fold.tensor(f, {2, 18, 24}).ints({7, 8}).ints({3, 2}).ints({1, 2}).ints({1, 0}).ints({2, 1});
  expect_ok(fold.module({{f, {2, 3, 7, 8}}}), "col2im");
  for (double p : {0.0, 1.0, 2.0, 3.5, HUGE_VAL}) {
    expect_ok(RuleCall("aten::_cdist_forward")
                  .tensor(f, {2, 5, 3})
                  .tensor(f, {4, 3})
                  .number(p)
                  .none()
                  .module({{f, {2, 5, 4}}}),
              "cdist");
    expect_ok(RuleCall("aten::_pdist_forward").tensor(f, {5, 3}).number(p).module({{f, {10}}}), "pdist");
  }
}

}  // namespace
}  // namespace torch_tpu::ops
