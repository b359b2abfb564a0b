#include "pjrt/unbounded.h"

#include <gtest/gtest.h>

namespace torch_tpu::pjrt {
namespace {

TEST(Unbounded, FindsDimensionsWithoutBounds) {
  EXPECT_FALSE(
      has_unbounded_dimension(R"(%0 = "stablehlo.add"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>)"));
  EXPECT_TRUE(has_unbounded_dimension("^bb0(%a: tensor<?xf32>):"));
  EXPECT_TRUE(has_unbounded_dimension("tensor<4xf32> tensor<2x?xcomplex<f32>>"));
  EXPECT_FALSE(has_unbounded_dimension("tensor<?xf32, #stablehlo.bounds<4>>"));
  EXPECT_FALSE(has_unbounded_dimension("tensor<?x4xcomplex<f32>, #stablehlo.bounds<8, ?>>"));
  EXPECT_FALSE(has_unbounded_dimension(R"(loc("what?.py":1:1) tensor<4xf32>)"));
  EXPECT_FALSE(has_unbounded_dimension("? tensor<"));
}

}  // namespace
}  // namespace torch_tpu::pjrt
