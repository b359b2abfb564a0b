#include "hlo/verify.h"

#include <gtest/gtest.h>

#include "hlo/builder.h"

namespace torch_tpu::hlo {
namespace {

std::string problem(const std::string& operation) {
  const Status status = verify_attributes(
      "module @m {\n  func.func @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {\n    " +
      operation + "\n    \"func.return\"(%0) : (tensor<4xf32>) -> ()\n  }\n}\n");
  return status.ok() ? "" : status.error().message;
}

TEST(Verify, KnowsTheNamesOfAttributes) {
  EXPECT_EQ(problem("%0 = \"stablehlo.reverse\"(%a) {dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>"),
            "");
  EXPECT_EQ(problem("%0 = \"stablehlo.reverse\"(%a) {dimension = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>"),
            "stablehlo.reverse: attribute, got <dimension>, expected <one of dimensions>");
  EXPECT_EQ(problem("%0 = \"stablehlo.reverse\"(%a) : (tensor<4xf32>) -> tensor<4xf32>"),
            "stablehlo.reverse: attributes, got <no dimensions>, expected <it>");
  EXPECT_EQ(problem("%0 = \"stablehlo.negate\"(%a) {x} : (tensor<4xf32>) -> tensor<4xf32>"),
            "stablehlo.negate: attribute, got <x>, expected <none>");
  EXPECT_EQ(problem("%0 = \"stablehlo.negat\"(%a) : (tensor<4xf32>) -> tensor<4xf32>"),
            "verify: operation, got <stablehlo.negat>, expected <one of the table in hlo/verify.cc>");
  EXPECT_EQ(problem("%0 = \"stablehlo.negate\"(%a) {mhlo.frontend_attributes = {a = \"}\"}} : (tensor<4xf32>) -> "
                    "tensor<4xf32> loc(\"x\")"),
            "");
  EXPECT_EQ(problem("%0 = \"stablehlo.custom_call\"(%a) {call_target_name = \"a\\\"b\", backend_config = {k = 3 : "
                    "i64}} : (tensor<4xf32>) -> tensor<4xf32>"),
            "");
  EXPECT_NE(problem("%0 = \"stablehlo.negate\"(%a"), "");
  EXPECT_NE(problem("%0 = \"stablehlo.negate\" : "), "");
  EXPECT_FALSE(verify_attributes("nothing").ok());
}

TEST(Verify, LooksIntoRegionsAndBehindThem) {
  const std::string region =
      "%0 = \"stablehlo.reduce\"(%a, %a) ({\n    ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n      ";
  const std::string add = "%r = \"stablehlo.add\"(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n";
  const std::string typo = "%r = \"stablehlo.add\"(%x, %y) {fast = true} : (tensor<f32>, tensor<f32>) -> tensor<f32>\n";
  const std::string end = "      \"stablehlo.return\"(%r) : (tensor<f32>) -> ()\n    }) ";
  const std::string type = " : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>";
  EXPECT_EQ(problem(region + add + end + "{dimensions = array<i64: 0>}" + type), "");
  EXPECT_NE(problem(region + typo + end + "{dimensions = array<i64: 0>}" + type), "");
  EXPECT_NE(problem(region + add + end + "{dims = array<i64: 0>}" + type), "");
  EXPECT_NE(problem(region + add + end + type), "");
}

TEST(Verify, AcceptsNestedRegionsOfTheBuilder) {
  Builder b;
  const Value p = b.parameter({DType::kBool, {}}), x = b.parameter({DType::kF32, {4}});
  const Values v = b.if_else(
      p, [&](Builder& r) -> Values { return {r.reduce_sum(x, {0})}; },
      [&](Builder& r) -> Values { return {r.reduce_max(x, {0})}; });
  auto text = b.finish(v);
  ASSERT_TRUE(text.ok());
  const Status status = verify_attributes(text.value());
  EXPECT_TRUE(status.ok()) << status.error().message;
}

}  // namespace
}  // namespace torch_tpu::hlo
