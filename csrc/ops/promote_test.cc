#include "ops/promote.h"

#include <gtest/gtest.h>

namespace torch_tpu::ops {
namespace {

TEST(PromoteTypes, FollowsTheLattice) {
  EXPECT_EQ(promote_types(DType::kU8, DType::kI8), DType::kI16);
  EXPECT_EQ(promote_types(DType::kI8, DType::kU8), DType::kI16);
  EXPECT_EQ(promote_types(DType::kBool, DType::kU8), DType::kU8);
  EXPECT_EQ(promote_types(DType::kI64, DType::kF16), DType::kF16);
  EXPECT_EQ(promote_types(DType::kF16, DType::kBF16), DType::kF32);
  EXPECT_EQ(promote_types(DType::kF64, DType::kC64), DType::kC128);
  EXPECT_EQ(promote_types(DType::kC64, DType::kI64), DType::kC64);
}

TEST(ResultType, NumbersAndZeroDimTensorsRankBelowTensors) {
  const Promotable half{DType::kBF16, false, false};
  EXPECT_EQ(result_type({half, {DType::kF64, true, true}}), DType::kBF16);
  EXPECT_EQ(result_type({half, {DType::kF64, true, false}}), DType::kBF16);
  EXPECT_EQ(result_type({{DType::kI32, false, false}, {DType::kF64, true, true}}), DType::kF32);
  EXPECT_EQ(result_type({{DType::kI32, false, false}, {DType::kF64, true, false}}), DType::kF64);
  EXPECT_EQ(result_type({{DType::kU8, false, false}, {DType::kI64, true, true}}), DType::kU8);
  EXPECT_EQ(result_type({{DType::kBool, false, false}, {DType::kI64, true, true}}), DType::kI64);
  EXPECT_EQ(result_type({{DType::kF64, false, false}, {DType::kC128, true, true}}), DType::kC128);
}

TEST(Shapes, BroadcastAndWrap) {
  EXPECT_EQ(broadcast_shapes({{3, 1}, {4}}), (Shape{3, 4}));
  EXPECT_EQ(broadcast_shapes({{0}, {1}}), (Shape{0}));
  EXPECT_EQ(wrap_dim(-1, 0), 0);
  EXPECT_EQ(wrap_dims({}, 2), (Dims{0, 1}));
  EXPECT_EQ(wrap_dims({-1, 0}, 3), (Dims{0, 2}));
  EXPECT_TRUE(wrap_dims({-1}, 0).empty());
}

}  // namespace
}  // namespace torch_tpu::ops
