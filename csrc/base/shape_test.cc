#include "base/shape.h"

#include <gtest/gtest.h>

namespace torch_tpu {
namespace {

TEST(ShapeFacts, Counts) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(element_count({2, 0, 4}), 0);
}

TEST(ShapeFacts, StridesAreRowMajorAndStepOverEmptyDimensions) {
  EXPECT_EQ(contiguous_strides({}), (std::vector<int64_t>{}));
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (std::vector<int64_t>{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 4}), (std::vector<int64_t>{4, 4, 1}));
}

TEST(ShapeFacts, Text) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
}

}  // namespace
}  // namespace torch_tpu
