#include "ops/reduction.h"

#include <gtest/gtest.h>

#include <limits>

#include "ops/rule_testing.h"

namespace torch_tpu::ops {
namespace {

using testing::RuleCall;

void expect_ok(const Result<std::string>& module, const std::string& what) {
  EXPECT_TRUE(module.ok()) << what << ": " << (module.ok() ? "" : module.error().message);
}

TEST(Reductions, DimsKeepdimAndZeroDim) {
  for (const char* name :
       {"aten::sum.dim_IntList", "aten::mean.dim", "aten::amax", "aten::amin", "aten::nansum", "aten::logsumexp"}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      expect_ok(RuleCall(name).tensor(dtype, {2, 3, 4}).ints({-1, 0}).flag(false).none().module({{dtype, {3}}}), name);
      expect_ok(RuleCall(name).tensor(dtype, {2, 3}).ints({1}).flag(true).none().module({{dtype, {2, 1}}}), name);
      expect_ok(RuleCall(name).tensor(dtype, {}).ints({0}).flag(false).none().module({{dtype, {}}}), name);
    }
  }
  expect_ok(
      RuleCall("aten::sum.dim_IntList").tensor(DType::kBool, {4}).none().flag(false).none().module({{DType::kI64, {}}}),
      "sum of bool");
}

TEST(Reductions, PositionsAndMoments) {
  const Type x{DType::kF32, {2, 5}};
  for (const char* name : {"aten::max.dim", "aten::min.dim"}) {
    expect_ok(RuleCall(name)
                  .tensor(x.dtype, x.shape)
                  .integer(-1)
                  .flag(false)
                  .module({{DType::kF32, {2}}, {DType::kI64, {2}}}),
              name);
    expect_ok(RuleCall(name).tensor(x.dtype, {}).integer(0).flag(false).module({{DType::kF32, {}}, {DType::kI64, {}}}),
              name);
  }
  expect_ok(RuleCall("aten::argmax").tensor(x.dtype, x.shape).none().flag(false).module({{DType::kI64, {}}}), "argmax");
  expect_ok(RuleCall("aten::var.correction")
                .tensor(x.dtype, x.shape)
                .ints({1})
                .scalar(DType::kI64)
                .flag(false)
                .module({{DType::kF32, {2}}}),
            "var");
  expect_ok(RuleCall("aten::std_mean.correction")
                .tensor(DType::kC64, x.shape)
                .none()
                .none()
                .flag(false)
                .module({{DType::kF32, {}}, {DType::kC64, {}}}),
            "std_mean of complex");
  for (double p : {0.0, 1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    expect_ok(RuleCall("aten::linalg_vector_norm")
                  .tensor(x.dtype, x.shape)
                  .constant(p)
                  .ints({0})
                  .flag(false)
                  .none()
                  .module({{DType::kF32, {5}}}),
              "norm");
  }
  expect_ok(RuleCall("aten::linalg_vector_norm")
                .tensor(DType::kC64, x.shape)
                .scalar()
                .none()
                .flag(false)
                .none()
                .module({{DType::kF32, {}}}),
            "p-norm");
}

TEST(Histograms, OfOneAndOfSeveralDimensions) {
  const DType f32 = DType::kF32;
  expect_ok(RuleCall("aten::histogram.bin_ct")
                .tensor(f32, {7, 2})
                .integer(4)
                .none()
                .tensor(f32, {7, 2})
                .flag(true)
                .checking_indices()
                .module({{f32, {4}}, {f32, {5}}}),
            "histogram");
  expect_ok(RuleCall("aten::_histogramdd_from_bin_cts")
                .tensor(f32, {7, 2})
                .ints({4, 3})
                .none()
                .none()
                .flag(false)
                .module({{f32, {4, 3}}}),
            "histogramdd");
  EXPECT_EQ(RuleCall("aten::histogram.bin_ct")
                .tensor(DType::kBF16, {7})
                .integer(4)
                .none()
                .none()
                .flag(false)
                .module({{DType::kBF16, {4}}, {DType::kBF16, {5}}})
                .error()
                .code,
            ErrorCode::kNotImplemented);
}

TEST(Scans, TakeLogarithmicallyManySteps) {
  auto module = RuleCall("aten::cumsum").tensor(DType::kF32, {1000}).integer(0).none().module({{DType::kF32, {1000}}});
  ASSERT_TRUE(module.ok());
  size_t pads = 0;
  for (size_t at = module.value().find("stablehlo.pad"); at != std::string::npos;
       at = module.value().find("stablehlo.pad", at + 1))
    ++pads;
  EXPECT_EQ(pads, 10u);
  expect_ok(RuleCall("aten::cummax")
                .tensor(DType::kBF16, {3, 4})
                .integer(-1)
                .module({{DType::kBF16, {3, 4}}, {DType::kI64, {3, 4}}}),
            "cummax");
  expect_ok(RuleCall("aten::logcumsumexp").tensor(DType::kF32, {}).integer(0).module({{DType::kF32, {}}}), "0-d");
}

TEST(Creation, RangesAndTriangles) {
  expect_ok(RuleCall("aten::arange.start_step").constant(0).constant(10).constant(2).module({{DType::kI64, {5}}}),
            "arange");
  expect_ok(RuleCall("aten::linspace").scalar().scalar().integer(5).module({{DType::kF32, {5}}}), "linspace");
  expect_ok(RuleCall("aten::eye.m").integer(3).integer(4).module({{DType::kF32, {3, 4}}}), "eye");
  expect_ok(RuleCall("aten::tril").tensor(DType::kBool, {3, 4}).integer(-1).module({{DType::kBool, {3, 4}}}), "tril");
  expect_ok(RuleCall("aten::tril_indices").integer(3).integer(3).integer(0).module({{DType::kI64, {2, 6}}}),
            "tril_indices");
}

}  // namespace
}  // namespace torch_tpu::ops
