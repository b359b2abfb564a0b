#include <gtest/gtest.h>

#include "ops/rule_testing.h"

namespace torch_tpu::ops {
namespace {

using testing::RuleCall;

void expect_ok(const Result<std::string>& module, const std::string& what) {
  EXPECT_TRUE(module.ok()) << what << ": " << (module.ok() ? "" : module.error().message);
}

TEST(Order, SortsEveryDTypeOnBothPlatforms) {
  for (DType dtype : {DType::kBool, DType::kU8, DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kF16,
                      DType::kBF16, DType::kF32, DType::kF64}) {
    for (Platform platform : {Platform::kCpu, Platform::kTpu}) {
      for (const Shape& shape : {Shape{4, 7}, Shape{}, Shape{0, 3}}) {
        const std::vector<Type> results = {{dtype, shape}, {DType::kI64, shape}};
        RuleCall call("aten::sort.stable");
        call.on(platform).tensor(dtype, shape).flag(true).integer(-1).flag(true);
        expect_ok(call.module(results), "sort");
      }
      RuleCall top("aten::topk");
      top.on(platform).tensor(dtype, {4, 7}).integer(2).integer(0).flag(false).flag(true);
      expect_ok(top.module({{dtype, {2, 7}}, {DType::kI64, {2, 7}}}), "topk");
    }
  }
}

TEST(Order, SingleWordsAreSortedOnTheEmbeddedEngineOnly) {
  auto text = [](Platform platform) {
    RuleCall call("aten::sort.stable");
    call.on(platform).tensor(DType::kF32, {8}).flag(false).integer(0).flag(false);
    return call.module({{DType::kF32, {8}}, {DType::kI64, {8}}}).take();
  };
  EXPECT_NE(text(Platform::kCpu).find("tensor<8xui64>"), std::string::npos);
  EXPECT_EQ(text(Platform::kTpu).find("tensor<8xui64>"), std::string::npos);
}

TEST(Order, MediansAndModes) {
  for (DType dtype : {DType::kI64, DType::kF32, DType::kBF16}) {
    for (const char* name : {"aten::median.dim", "aten::nanmedian.dim", "aten::mode"}) {
      expect_ok(
          RuleCall(name).tensor(dtype, {3, 9}).integer(1).flag(true).module({{dtype, {3, 1}}, {DType::kI64, {3, 1}}}),
          name);
      expect_ok(RuleCall(name).tensor(dtype, {}).integer(0).flag(false).module({{dtype, {}}, {DType::kI64, {}}}), name);
    }
    expect_ok(RuleCall("aten::median").tensor(dtype, {0}).module({{dtype, {}}}), "median of nothing");
  }
}

TEST(Order, Searches) {
  for (int64_t n : {0, 3, 1000}) {
    for (DType result : {DType::kI32, DType::kI64}) {
      RuleCall call("aten::searchsorted.Tensor");
      call.tensor(DType::kF32, {4, n}).tensor(DType::kF32, {4, 6}).flag(result == DType::kI32).flag(true).none().none();
      expect_ok(call.module({{result, {4, 6}}}), "searchsorted");
    }
    RuleCall bucket("aten::bucketize.Scalar");
    expect_ok(bucket.scalar().tensor(DType::kF32, {n}).flag(false).flag(false).module({{DType::kI64, {}}}),
              "bucketize");
    RuleCall isin("aten::isin.Tensor_Tensor");
    expect_ok(isin.tensor(DType::kI64, {5000})
                  .tensor(DType::kI32, {n})
                  .flag(false)
                  .flag(true)
                  .module({{DType::kBool, {5000}}}),
              "isin");
  }
}

}  // namespace
}  // namespace torch_tpu::ops
