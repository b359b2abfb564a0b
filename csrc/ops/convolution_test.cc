#include <gtest/gtest.h>

#include "ops/rule_testing.h"

namespace torch_tpu::ops {
namespace {

using testing::RuleCall;

struct Case {
  Shape input, weight;
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;
};

const Case kCases[] = {
    {{2, 4, 9}, {6, 4, 3}, {1}, {1}, {1}, {0}, false, 1},
    {{2, 4, 30, 30}, {6, 4, 1, 1}, {1}, {0}, {1}, {0}, false, 1},
    {{2, 4, 9, 8}, {6, 2, 3, 2}, {2, 3}, {1, 0}, {1, 2}, {0, 0}, false, 2},
    {{2, 5, 9, 8}, {10, 1, 3, 3}, {2, 1}, {1, 1}, {1, 1}, {0, 0}, false, 5},
    {{2, 4, 5, 6, 7}, {6, 2, 3, 2, 1}, {1, 2, 1}, {2, 1, 0}, {1, 1, 1}, {0, 0, 0}, false, 2},
    {{2, 4, 5, 6}, {4, 3, 4, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 0}, true, 1},
    {{2, 4, 5, 6}, {4, 1, 3, 3}, {3, 2}, {0, 1}, {2, 1}, {2, 1}, true, 4},
    {{2, 4, 3, 4, 5}, {4, 3, 2, 3, 2}, {2, 1, 2}, {0, 1, 1}, {1, 1, 1}, {1, 0, 0}, true, 2},
};

Shape output_of(const Case& k) {
  auto at = [](const std::vector<int64_t>& v, size_t i) { return v[v.size() == 1 ? 0 : i]; };
  Shape out{k.input[0], k.transposed ? k.weight[1] * k.groups : k.weight[0]};
  for (size_t i = 0; i + 2 < k.input.size(); ++i) {
    const int64_t n = k.input[i + 2], reach = at(k.dilation, i) * (k.weight[i + 2] - 1) + 1;
    const int64_t s = at(k.stride, i), p = at(k.padding, i);
    out.push_back(k.transposed ? (n - 1) * s - 2 * p + reach + at(k.output_padding, i) : (n + 2 * p - reach) / s + 1);
  }
  return out;
}

RuleCall& geometry(RuleCall& call, const Case& k) {
  return call.ints(k.stride)
      .ints(k.padding)
      .ints(k.dilation)
      .flag(k.transposed)
      .ints(k.output_padding)
      .integer(k.groups);
}

Result<std::string> forward(const Case& k, Platform platform, DType dtype) {
  RuleCall call("aten::convolution_overrideable");
  call.on(platform).tensor(dtype, k.input).tensor(dtype, k.weight).none();
  return geometry(call, k).module({{dtype, output_of(k)}});
}

Result<std::string> backward(const Case& k, Platform platform, DType dtype) {
  RuleCall call("aten::convolution_backward_overrideable");
  call.on(platform).tensor(dtype, output_of(k)).tensor(dtype, k.input).tensor(dtype, k.weight);
  geometry(call, k).none();
  return call.module({{dtype, k.input}, {dtype, k.weight}, {dtype, {output_of(k)[1]}}});
}

TEST(Convolution, BuildsForBothPlatforms) {
  for (const Case& k : kCases) {
    for (Platform platform : {Platform::kCpu, Platform::kTpu}) {
      for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
        for (const auto& module : {forward(k, platform, dtype), backward(k, platform, dtype)})
          EXPECT_TRUE(module.ok()) << to_string(k.weight) << ": " << (module.ok() ? "" : module.error().message);
      }
    }
  }
}

// XLA:CPU runs reversed, grouped, narrow and volumetric convolutions in scalar loops.
TEST(Convolution, GivesTheEmbeddedEngineOnlyFastForms) {
  for (const Case& k : kCases) {
    for (const auto& module : {forward(k, Platform::kCpu, DType::kBF16), backward(k, Platform::kCpu, DType::kBF16)}) {
      ASSERT_TRUE(module.ok());
      std::string_view rest = module.value();
      for (size_t at = rest.find("stablehlo.convolution"); at != std::string_view::npos;
           at = rest.find("stablehlo.convolution")) {
        rest.remove_prefix(at);
        const std::string_view line = rest.substr(0, rest.find('\n'));
        EXPECT_EQ(line.find("array<i1: true"), std::string_view::npos) << line;
        EXPECT_NE(line.find("feature_group_count = 1 : i64"), std::string_view::npos) << line;
        EXPECT_NE(line.find("batch_group_count = 1 : i64"), std::string_view::npos) << line;
        EXPECT_EQ(line.find("bf16"), std::string_view::npos) << line;
        EXPECT_EQ(line.find("[b, f, 0, 1, 2]"), std::string_view::npos) << line;
        rest.remove_prefix(1);
      }
    }
  }
}

TEST(Convolution, EmptyInputsGiveZeros) {
  const Case k{{0, 4, 9, 9}, {6, 4, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, false, 1};
  for (Platform platform : {Platform::kCpu, Platform::kTpu}) {
    EXPECT_TRUE(forward(k, platform, DType::kF32).ok());
    EXPECT_TRUE(backward(k, platform, DType::kF32).ok());
  }
}

}  // namespace
}  // namespace torch_tpu::ops
