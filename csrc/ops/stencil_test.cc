#include "ops/stencil.h"

#include <gtest/gtest.h>

#include <map>

namespace torch_tpu::ops {
namespace {

// The stencil as a dense matrix: {output, input} -> weight.
std::map<std::pair<int64_t, int64_t>, double> dense(const Stencil& stencil) {
  std::map<std::pair<int64_t, int64_t>, double> matrix;
  for (size_t o = 0; o < stencil.outputs.size(); ++o) {
    for (const Tap& tap : stencil.outputs[o]) matrix[{static_cast<int64_t>(o), tap.position}] += tap.weight;
  }
  return matrix;
}

TEST(Stencil, TransposeSwapsInputsAndOutputs) {
  Stencil stencil{4, {{{0, 0.5}, {1, 0.5}}, {}, {{3, 0.25}, {3, 0.75}}, {{1, 2.0}}}};
  Stencil back = stencil.transposed();
  EXPECT_EQ(back.inputs, 4);
  EXPECT_EQ(back.outputs.size(), 4u);
  for (const auto& [place, weight] : dense(stencil)) EXPECT_EQ((dense(back)[{place.second, place.first}]), weight);
  EXPECT_EQ(dense(back.transposed()), dense(stencil));
}

TEST(Stencil, PositionsOutsideGiveNoTap) {
  Stencil stencil = Stencil::from_positions(3, {-1, 0, 2, 3});
  EXPECT_TRUE(stencil.outputs[0].empty());
  EXPECT_EQ(stencil.outputs[2][0].position, 2);
  EXPECT_TRUE(stencil.outputs[3].empty());
}

TEST(Stencil, BuildsSlicesWhereItCan) {
  hlo::Builder b;
  Value x = b.parameter({DType::kF32, {2, 6}});
  Value every_second = apply_stencil(b, x, 1, Stencil::from_positions(6, {1, 3, 5}));
  Value reversed = apply_stencil(b, every_second, 1, Stencil::from_positions(3, {2, 1, 0}));
  Value repeated = apply_stencil(b, reversed, 1, Stencil::from_positions(3, {0, 0, 1, 1, 2, 2}));
  auto text = b.finish({repeated});
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text.value().find("stablehlo.gather"), std::string::npos);
}

TEST(Stencil, ManyTapsAndEmptyOnes) {
  hlo::Builder b;
  Value x = b.parameter({DType::kF32, {2, 9}});
  Stencil sums{9, {{}, {}}};
  for (int64_t p = 0; p < 9; ++p) sums.outputs[p % 2].push_back({p, 1.0});
  Value y = apply_stencil(b, x, 1, sums);
  EXPECT_EQ(y.shape(), (Shape{2, 2}));
  EXPECT_EQ(apply_stencil(b, x, 0, Stencil{2, {{}, {}, {}}}).shape(), (Shape{3, 9}));
  EXPECT_TRUE(b.finish({y}).ok());
}

}  // namespace
}  // namespace torch_tpu::ops
