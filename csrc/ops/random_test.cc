#include <gtest/gtest.h>

#include "ops/rule_testing.h"

namespace torch_tpu::ops {
namespace {

using testing::RuleCall;

void expect_ok(const Result<std::string>& module, const std::string& what) {
  EXPECT_TRUE(module.ok()) << what << ": " << (module.ok() ? "" : module.error().message);
}

TEST(RandomRows, InPlaceFormsKeepTheTypeOfSelf) {
  for (Platform platform : {Platform::kCpu, Platform::kTpu}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      const std::vector<Type> self = {{dtype, {5, 3}}};
      expect_ok(
          RuleCall("aten::uniform_").on(platform).tensor(dtype, {5, 3}).number(-1).number(1).none().module(self, 0),
          "uniform_");
      expect_ok(RuleCall("aten::normal_").on(platform).tensor(dtype, {5, 3}).number(0).number(1).none().module(self, 0),
                "normal_");
      expect_ok(RuleCall("aten::exponential_").tensor(dtype, {5, 3}).number(2).none().module(self, 0), "exponential_");
      expect_ok(RuleCall("aten::cauchy_").tensor(dtype, {5, 3}).number(0).number(2).none().module(self, 0), "cauchy_");
      expect_ok(RuleCall("aten::log_normal_").tensor(dtype, {5, 3}).number(0).number(2).none().module(self, 0),
                "log_normal_");
      expect_ok(RuleCall("aten::geometric_").tensor(dtype, {5, 3}).number(0.5).none().module(self, 0), "geometric_");
      expect_ok(RuleCall("aten::bernoulli_.float").tensor(dtype, {5, 3}).number(0.5).none().module(self, 0),
                "bernoulli_");
      expect_ok(RuleCall("aten::random_").tensor(dtype, {5, 3}).none().module(self, 0), "random_");
    }
  }
}

TEST(RandomRows, IntegersAndRejection) {
  for (DType dtype : {DType::kU8, DType::kI8, DType::kI32, DType::kI64, DType::kBool}) {
    expect_ok(RuleCall("aten::random_").tensor(dtype, {7}).none().module({{dtype, {7}}}, 0), "random_");
    expect_ok(RuleCall("aten::random_.from").tensor(dtype, {7}).integer(0).none().none().module({{dtype, {7}}}, 0),
              "random_.from");
    expect_ok(RuleCall("aten::random_.to").tensor(dtype, {7}).integer(2).none().module({{dtype, {7}}}, 0),
              "random_.to");
  }
  const Type x{DType::kF32, {4, 3}};
  expect_ok(RuleCall("aten::poisson").tensor(x.dtype, x.shape).none().module({x}), "poisson");
  expect_ok(RuleCall("aten::binomial").tensor(x.dtype, x.shape).tensor(x.dtype, x.shape).none().module({x}),
            "binomial");
  expect_ok(RuleCall("aten::_standard_gamma").tensor(x.dtype, x.shape).none().module({x}), "gamma");
  expect_ok(RuleCall("aten::_sample_dirichlet").tensor(x.dtype, x.shape).none().module({x}), "dirichlet");
  for (bool replacement : {false, true}) {
    expect_ok(RuleCall("aten::multinomial")
                  .tensor(x.dtype, x.shape)
                  .integer(2)
                  .flag(replacement)
                  .none()
                  .module({{DType::kI64, {4, 2}}}),
              "multinomial");
  }
}

TEST(RandomRows, NumberOfBlocksFollowsTheElements) {
  auto module =
      RuleCall("aten::uniform_").tensor(DType::kF32, {10}).number(0).number(1).none().module({{DType::kF32, {10}}}, 0);
  ASSERT_TRUE(module.ok());
  EXPECT_NE(module.value().find("tensor<3xui64>"), std::string::npos);  // ten numbers are three blocks of four
}

}  // namespace
}  // namespace torch_tpu::ops
