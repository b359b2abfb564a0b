#include "ops/pointwise.h"

#include <gtest/gtest.h>

#include "ops/rule_testing.h"

namespace torch_tpu::ops {
namespace {

using testing::RuleCall;

const Shape kShape = {2, 3};

void expect_ok(const Result<std::string>& module, const std::string& what) {
  EXPECT_TRUE(module.ok()) << what << ": " << (module.ok() ? "" : module.error().message);
}

class UnaryRows : public ::testing::TestWithParam<const char*> {};

TEST_P(UnaryRows, BuildForEveryFloat) {
  const std::string name = std::string("aten::") + GetParam();
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    expect_ok(RuleCall(name).tensor(dtype, kShape).module({{dtype, kShape}}), name);
    expect_ok(RuleCall(name).tensor(dtype, {}).module({{dtype, {}}}), name + " 0-d");
    expect_ok(RuleCall(name).tensor(dtype, {0, 2}).module({{dtype, {0, 2}}}), name + " empty");
  }
}

INSTANTIATE_TEST_SUITE_P(Pointwise, UnaryRows,
                         ::testing::Values("abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "ceil",
                                           "_conj_physical", "cos", "cosh", "digamma", "erf", "erfc", "erfinv", "exp",
                                           "exp2", "expm1", "floor", "frac", "hardsigmoid", "hardswish", "i0", "lgamma",
                                           "log", "log10", "log1p", "log2", "mish", "neg", "reciprocal", "relu",
                                           "round", "rsqrt", "sgn", "sigmoid", "sign", "silu", "sin", "sinc", "sinh",
                                           "special_airy_ai", "special_bessel_j0", "special_bessel_j1",
                                           "special_bessel_y0", "special_bessel_y1", "special_entr", "special_erfcx",
                                           "special_i0e", "special_i1", "special_i1e", "special_log_ndtr",
                                           "special_modified_bessel_i0", "special_modified_bessel_i1",
                                           "special_modified_bessel_k0", "special_modified_bessel_k1", "special_ndtri",
                                           "special_scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1",
                                           "special_spherical_bessel_j0", "sqrt", "tan", "tanh", "trunc"));

TEST(UnaryRules, IntegersPromoteToTheInferredFloat) {
  expect_ok(RuleCall("aten::sin").tensor(DType::kI32, kShape).module({{DType::kF32, kShape}}), "sin");
  expect_ok(RuleCall("aten::floor").tensor(DType::kI32, kShape).module({{DType::kI32, kShape}}), "floor");
  expect_ok(RuleCall("aten::abs").tensor(DType::kC64, kShape).module({{DType::kF32, kShape}}), "abs of complex");
  expect_ok(RuleCall("aten::signbit").tensor(DType::kBF16, kShape).module({{DType::kBool, kShape}}), "signbit");
}

class BinaryRows : public ::testing::TestWithParam<const char*> {};

TEST_P(BinaryRows, BroadcastAndTakeNumbers) {
  const std::string name = std::string("aten::") + GetParam();
  const bool is_integer = name == "aten::gcd" || name == "aten::lcm" || name.find("bitwise") != std::string::npos;
  const DType dtype = is_integer ? DType::kI32 : DType::kF32;
  expect_ok(RuleCall(name).tensor(dtype, {2, 1}).tensor(dtype, {3}).constant(1).module({{dtype, kShape}}), name);
}

INSTANTIATE_TEST_SUITE_P(Pointwise, BinaryRows,
                         ::testing::Values("add.Tensor", "sub.Tensor", "rsub.Tensor", "mul.Tensor", "div.Tensor",
                                           "floor_divide", "remainder.Tensor", "fmod.Tensor", "pow.Tensor_Tensor",
                                           "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "logaddexp",
                                           "logaddexp2", "copysign.Tensor", "nextafter", "xlogy.Tensor",
                                           "special_xlog1py", "heaviside", "gcd", "lcm", "bitwise_and.Tensor",
                                           "bitwise_left_shift.Tensor", "bitwise_right_shift.Tensor", "igamma",
                                           "igammac", "special_zeta", "special_legendre_polynomial_p"));

TEST(BinaryRules, ComparisonUsesTheCommonType) {
  expect_ok(RuleCall("aten::lt.Scalar").tensor(DType::kI64, kShape).scalar().module({{DType::kBool, kShape}}), "lt");
  expect_ok(
      RuleCall("aten::eq.Tensor").tensor(DType::kC64, kShape).tensor(DType::kF32, {}).module({{DType::kBool, kShape}}),
      "eq");
}

TEST(BinaryRules, AlphaOneNeedsNoMultiplication) {
  auto one = RuleCall("aten::add.Tensor")
                 .tensor(DType::kF32, kShape)
                 .tensor(DType::kF32, kShape)
                 .constant(1)
                 .module({{DType::kF32, kShape}});
  auto any = RuleCall("aten::add.Tensor")
                 .tensor(DType::kF32, kShape)
                 .tensor(DType::kF32, kShape)
                 .scalar()
                 .module({{DType::kF32, kShape}});
  ASSERT_TRUE(one.ok() && any.ok());
  EXPECT_EQ(one.value().find("multiply"), std::string::npos);
  EXPECT_NE(any.value().find("multiply"), std::string::npos);
}

TEST(BinaryRules, UnknownRoundingModeIsAnError) {
  auto module = RuleCall("aten::div.Tensor_mode")
                    .tensor(DType::kF32, kShape)
                    .tensor(DType::kF32, kShape)
                    .text("up")
                    .module({{DType::kF32, kShape}});
  ASSERT_FALSE(module.ok());
  EXPECT_NE(module.error().message.find("rounding_mode"), std::string::npos);
}

TEST(Table, NamesAreUniqueAndFindable) {
  for (const Row& row : table()) {
    for (Platform platform : {Platform::kCpu, Platform::kTpu}) {
      if (!row.only || *row.only == platform) {
        EXPECT_EQ(find_row(row.name, platform), &row) << row.name;
      }
    }
  }
  EXPECT_EQ(find_row("aten::no_such_op", Platform::kCpu), nullptr);
}

}  // namespace
}  // namespace torch_tpu::ops
