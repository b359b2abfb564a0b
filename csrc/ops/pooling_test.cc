#include "ops/pooling.h"

#include <gtest/gtest.h>

#include "ops/rule_testing.h"

namespace torch_tpu::ops {
namespace {

using testing::RuleCall;

void expect_ok(const Result<std::string>& module, const std::string& what) {
  EXPECT_TRUE(module.ok()) << what << ": " << (module.ok() ? "" : module.error().message);
}

TEST(Pooling, WindowAttributesExpand) {
  PoolWindow w = pool_window(3, {2}, {}, {1, 0, 1}, {1});
  EXPECT_EQ(w.kernel, (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(w.stride, w.kernel);
  EXPECT_EQ(w.padding, (std::vector<int64_t>{1, 0, 1}));
}

TEST(Pooling, MaxPoolSmallLargeAndHugeWindows) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI64}) {
    for (int64_t kernel : {2, 3, 7, 21}) {
      const int64_t padding = kernel / 2, out = (40 + 2 * padding - kernel) / 2 + 1;
      const Type x{dtype, {2, 3, 40, 40}}, y{dtype, {2, 3, out, out}}, indices{DType::kI64, y.shape};
      RuleCall forward("aten::max_pool2d_with_indices");
      forward.tensor(dtype, x.shape).ints({kernel, kernel}).ints({2, 2}).ints({padding}).ints({1}).flag(false);
      expect_ok(forward.module({y, indices}), "max_pool2d");
      if (dtype == DType::kI64) continue;
      RuleCall backward("aten::max_pool2d_with_indices_backward");
      backward.tensor(dtype, y.shape)
          .tensor(dtype, x.shape)
          .ints({kernel, kernel})
          .ints({2, 2})
          .ints({padding})
          .ints({1});
      backward.flag(false).tensor(DType::kI64, y.shape);
      expect_ok(backward.module({x}), "max_pool2d backward");
    }
  }
}

TEST(Pooling, AdaptiveWindowsDividingAndNot) {
  const DType f = DType::kF32;
  for (int64_t n : {1, 3, 4, 6, 9}) {
    expect_ok(RuleCall("aten::_adaptive_avg_pool2d").tensor(f, {3, 6, 8}).ints({n, 4}).module({{f, {3, n, 4}}}),
              "average");
    expect_ok(RuleCall("aten::_adaptive_avg_pool2d_backward")
                  .tensor(f, {3, n, 4})
                  .tensor(f, {3, 6, 8})
                  .module({{f, {3, 6, 8}}}),
              "backward");
    expect_ok(RuleCall("aten::adaptive_max_pool2d")
                  .tensor(f, {3, 6, 8})
                  .ints({n, 4})
                  .module({{f, {3, n, 4}}, {DType::kI64, {3, n, 4}}}),
              "maximum");
  }
}

}  // namespace
}  // namespace torch_tpu::ops
