#include "ops/indexing.h"

#include <gtest/gtest.h>

#include "ops/rule_testing.h"

namespace torch_tpu::ops {
namespace {

using testing::RuleCall;

constexpr DType kDTypes[] = {DType::kBool, DType::kU8,  DType::kI32, DType::kI64,
                             DType::kBF16, DType::kF32, DType::kF64, DType::kC64};
const Type kAbsent{};

void expect_ok(const Result<std::string>& module, const std::string& what) {
  EXPECT_TRUE(module.ok()) << what << ": " << (module.ok() ? "" : module.error().message);
}

TEST(Indexing, IndexTensorsTakeThePlaceOfTheirDimensions) {
  const Type i{DType::kI64, {2, 1}}, j{DType::kI32, {3}};
  const struct {
    std::vector<Type> indices;
    Shape result;
  } cases[] = {
      {{i}, {2, 1, 5, 6}},           {{kAbsent, j}, {4, 3, 6}},         {{i, j}, {2, 3, 6}},
      {{kAbsent, i, j}, {4, 2, 3}},  {{i, kAbsent, j}, {2, 3, 5}},      {{j, j, j}, {3}},
      {{{DType::kI64, {}}}, {5, 6}}, {{{DType::kI64, {0}}}, {0, 5, 6}}, {{kAbsent}, {4, 5, 6}},
  };
  for (DType dtype : kDTypes) {
    for (const auto& c : cases) {
      expect_ok(RuleCall("aten::index.Tensor").tensor(dtype, {4, 5, 6}).tensors(c.indices).module({{dtype, c.result}}),
                "index");
      for (bool accumulate : {false, true}) {
        RuleCall put("aten::index_put");
        put.tensor(dtype, {4, 5, 6}).tensors(c.indices).tensor(dtype, {}).flag(accumulate);
        expect_ok(put.module({{dtype, {4, 5, 6}}}), "index_put");
      }
    }
  }
}

TEST(Indexing, ChecksEveryIndex) {
  const Type x{DType::kF32, {4, 5}}, i{DType::kI64, {3, 5}};
  auto call = [&](const char* name) {
    RuleCall c(name);
    c.checking_indices().tensor(x.dtype, x.shape);
    return c;
  };
  expect_ok(call("aten::gather").integer(0).tensor(i.dtype, i.shape).flag(false).module({{x.dtype, i.shape}}),
            "gather");
  expect_ok(call("aten::scatter_add").integer(0).tensor(i.dtype, i.shape).tensor(x.dtype, x.shape).module({x}),
            "scatter_add");
  expect_ok(call("aten::index_select").integer(-1).tensor(i.dtype, {3}).module({{x.dtype, {4, 3}}}), "index_select");
  expect_ok(call("aten::take").tensor(i.dtype, i.shape).module({{x.dtype, i.shape}}), "take");
  expect_ok(call("aten::embedding")
                .tensor(i.dtype, i.shape)
                .integer(-1)
                .flag(false)
                .flag(false)
                .module({{x.dtype, {3, 5, 5}}}),
            "embedding");
  expect_ok(call("aten::index_add").integer(1).tensor(i.dtype, {5}).tensor(x.dtype, x.shape).constant(1).module({x}),
            "index_add");
}

TEST(Indexing, ScattersBuildForEveryReduction) {
  for (DType dtype : {DType::kI64, DType::kF32, DType::kBF16}) {
    const Type x{dtype, {4, 5}};
    for (const char* reduce : {"sum", "prod", "mean", "amax", "amin"}) {
      for (bool include_self : {false, true}) {
        RuleCall call("aten::scatter_reduce.two");
        call.tensor(dtype, x.shape)
            .integer(1)
            .tensor(DType::kI64, {2, 9})
            .tensor(dtype, {4, 9})
            .text(reduce)
            .flag(include_self);
        expect_ok(call.module({x}), reduce);
      }
    }
  }
  RuleCall unknown("aten::scatter_reduce.two");
  unknown.tensor(DType::kF32, {4})
      .integer(0)
      .tensor(DType::kI64, {2})
      .tensor(DType::kF32, {2})
      .text("median")
      .flag(true);
  EXPECT_FALSE(unknown.module({{DType::kF32, {4}}}).ok());
}

TEST(Indexing, ZeroSizesAndZeroDims) {
  expect_ok(RuleCall("aten::gather")
                .tensor(DType::kF32, {})
                .integer(0)
                .tensor(DType::kI64, {})
                .flag(false)
                .module({{DType::kF32, {}}}),
            "gather of 0-d");
  expect_ok(RuleCall("aten::index_select")
                .tensor(DType::kF32, {0, 3})
                .integer(1)
                .tensor(DType::kI64, {2})
                .module({{DType::kF32, {0, 2}}}),
            "index_select of nothing");
  expect_ok(RuleCall("aten::nonzero_static")
                .tensor(DType::kF32, {0, 3})
                .integer(4)
                .integer(-1)
                .module({{DType::kI64, {4, 2}}}),
            "nonzero_static of nothing");
  expect_ok(RuleCall("aten::scatter.value")
                .tensor(DType::kF32, {})
                .integer(0)
                .tensor(DType::kI64, {})
                .scalar()
                .module({{DType::kF32, {}}}),
            "scatter into 0-d");
}

TEST(Indexing, EmbeddingBags) {
  for (int64_t mode : {0, 1, 2}) {
    for (bool last : {false, true}) {
      RuleCall call("aten::_embedding_bag");
      call.tensor(DType::kF32, {10, 4})
          .tensor(DType::kI64, {7})
          .tensor(DType::kI64, {3})
          .flag(false)
          .integer(mode)
          .flag(false);
      call.none().flag(last).integer(2);
      const int64_t bags = last ? 2 : 3;
      const Type max_indices{DType::kI64, mode == 2 ? Shape{bags, 4} : Shape{0}};
      expect_ok(call.module({{DType::kF32, {bags, 4}}, {DType::kI64, {7}}, {DType::kI64, {3}}, max_indices}), "bag");
    }
  }
}

}  // namespace
}  // namespace torch_tpu::ops
