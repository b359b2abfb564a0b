#include <gtest/gtest.h>

#include "ops/rule_testing.h"

namespace torch_tpu::ops {
namespace {

using testing::RuleCall;

void expect_ok(const Result<std::string>& module, const std::string& what) {
  EXPECT_TRUE(module.ok()) << what << ": " << (module.ok() ? "" : module.error().message);
}

const DType kDTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};

TEST(Linalg, FactorsEveryShape) {
  for (DType dtype : kDTypes) {
    for (const Shape& batch : {Shape{}, Shape{2, 3}, Shape{0}}) {
      for (auto [m, n] : {std::pair<int64_t, int64_t>{5, 5}, {7, 4}, {4, 7}, {0, 3}, {130, 70}}) {
        auto shaped = [&](std::initializer_list<int64_t> last) {
          Shape shape = batch;
          shape.insert(shape.end(), last);
          return shape;
        };
        const int64_t k = std::min(m, n);
        RuleCall factor("aten::linalg_lu_factor_ex");
        factor.tensor(dtype, shaped({m, n})).flag(true).flag(false);
        expect_ok(factor.module({{dtype, shaped({m, n})}, {DType::kI32, shaped({k})}, {DType::kI32, batch}}),
                  "lu_factor");
        RuleCall parts("aten::linalg_lu");
        parts.tensor(dtype, shaped({m, n})).flag(true);
        expect_ok(parts.module({{dtype, shaped({m, m})}, {dtype, shaped({m, k})}, {dtype, shaped({k, n})}}), "lu");
        RuleCall qr("aten::linalg_qr");
        qr.tensor(dtype, shaped({m, n})).text("complete");
        expect_ok(qr.module({{dtype, shaped({m, m})}, {dtype, shaped({m, n})}}), "qr");
      }
    }
  }
}

TEST(Linalg, SolvesVectorsAndMatricesFromBothSides) {
  for (DType dtype : kDTypes) {
    const std::vector<Type> factors = {{dtype, {2, 4, 4}}, {DType::kI32, {2, 4}}, {DType::kI32, {2}}};
    auto call = [&](const Shape& b, bool left, const Shape& result) {
      RuleCall solve("aten::_linalg_solve_ex");
      solve.tensor(dtype, {2, 4, 4}).tensor(dtype, b).flag(left).flag(false);
      std::vector<Type> types = {{dtype, result}};
      types.insert(types.end(), factors.begin(), factors.end());
      expect_ok(solve.module(types), "solve");
    };
    call({4}, true, {2, 4});
    call({2, 4}, true, {2, 4});
    call({4, 3}, true, {2, 4, 3});
    call({5, 1, 4, 3}, true, {5, 2, 4, 3});
    call({3, 4}, false, {2, 3, 4});
  }
}

TEST(Linalg, LeavesDoubleAndLargeEigenproblemsToTheHostOfTheEmbeddedEngine) {
  auto result = [](Platform platform, DType dtype, int64_t n) {
    RuleCall call("aten::_linalg_eigh");
    call.on(platform).tensor(dtype, {n, n}).text("L").flag(true);
    return call.module({{dtype, {n}}, {dtype, {n, n}}});
  };
  expect_ok(result(Platform::kCpu, DType::kF32, 64), "small");
  expect_ok(result(Platform::kTpu, DType::kF32, 65), "large on a TPU");
  for (auto refused : {result(Platform::kCpu, DType::kF32, 65), result(Platform::kTpu, DType::kF64, 4)}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kNotImplemented);
  }
}

TEST(Linalg, ExponentiatesEveryDType) {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kC64, DType::kC128}) {
    for (const Shape& shape : {Shape{3, 3}, Shape{2, 4, 5, 5}, Shape{2, 0, 0}}) {
      const auto module = RuleCall("aten::linalg_matrix_exp").tensor(dtype, shape).module({{dtype, shape}});
      EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().message);
    }
  }
}

TEST(Linalg, LeavesCheckedErrorsToTheHost) {
  RuleCall call("aten::linalg_inv_ex");
  call.tensor(DType::kF32, {3, 3}).flag(true);
  const auto refused = call.module({{DType::kF32, {3, 3}}, {DType::kI32, {}}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNotImplemented);
}

TEST(Fourier, TransformsAnyDims) {
  for (bool onesided : {true, false}) {
    RuleCall call("aten::_fft_r2c");
    call.tensor(DType::kF32, {3, 8, 5}).ints({0, 1}).integer(1).flag(onesided);
    expect_ok(call.module({{DType::kC64, {3, onesided ? 5 : 8, 5}}}), "r2c");
  }
  RuleCall back("aten::_fft_c2r");
  back.tensor(DType::kC128, {3, 5}).ints({-1}).integer(2).integer(7);
  expect_ok(back.module({{DType::kF64, {3, 7}}}), "c2r");
}

TEST(CtcLoss, HasOneModuleForAllLengths) {
  RuleCall call("aten::_ctc_loss.Tensor");
  call.tensor(DType::kF32, {12, 4, 6}).tensor(DType::kI64, {4, 5}).tensor(DType::kI64, {4}).tensor(DType::kI64, {4});
  call.integer(0).flag(false);
  expect_ok(call.module({{DType::kF32, {4}}, {DType::kF32, {4, 12, 11}}}), "ctc");
}

}  // namespace
}  // namespace torch_tpu::ops
