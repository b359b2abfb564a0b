#include "ops/resampling.h"

#include <gtest/gtest.h>

#include "ops/rule_testing.h"

namespace torch_tpu::ops {
namespace {

using testing::RuleCall;

void expect_ok(const Result<std::string>& module, const std::string& what) {
  EXPECT_TRUE(module.ok()) << what << ": " << (module.ok() ? "" : module.error().message);
}

TEST(Resampling, EveryModeForwardAndBackward) {
  const struct {
    const char* name;
    bool corners;
  } modes[] = {{"aten::upsample_nearest2d", false},     {"aten::_upsample_nearest_exact2d", false},
               {"aten::upsample_bilinear2d", true},     {"aten::upsample_bicubic2d", true},
               {"aten::_upsample_bilinear2d_aa", true}, {"aten::_upsample_bicubic2d_aa", true},
               {"aten::_upsample_lanczos2d_aa", true}};
  for (const auto& mode : modes) {
    for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kU8}) {
      for (int64_t size : {1, 4, 6, 12, 17}) {
        const Type in{dtype, {2, 3, 6, 8}}, out{dtype, {2, 3, size, 5}};
        RuleCall forward(mode.name);
        forward.tensor(dtype, in.shape).ints({size, 5});
        if (mode.corners) forward.flag(true);
        expect_ok(forward.none().none().module({out}), mode.name);
        if (dtype == DType::kU8) continue;
        RuleCall backward(std::string(mode.name) + "_backward");
        backward.tensor(dtype, out.shape).ints({size, 5}).ints(in.shape);
        if (mode.corners) backward.flag(false);
        expect_ok(backward.number(1.5).none().module({in}), std::string(mode.name) + "_backward");
      }
    }
  }
}

TEST(Resampling, GridSamplerModes) {
  const DType f = DType::kF32;
  for (int64_t mode : {0, 1, 2}) {
    for (int64_t padding : {0, 1, 2}) {
      RuleCall forward("aten::grid_sampler_2d");
      forward.tensor(f, {2, 3, 6, 8}).tensor(f, {2, 4, 5, 2}).integer(mode).integer(padding).flag(true);
      expect_ok(forward.module({{f, {2, 3, 4, 5}}}), "grid_sampler_2d");
      RuleCall backward("aten::grid_sampler_2d_backward");
      backward.tensor(f, {2, 3, 4, 5})
          .tensor(f, {2, 3, 6, 8})
          .tensor(f, {2, 4, 5, 2})
          .integer(mode)
          .integer(padding)
          .flag(false)
          .none();
      expect_ok(backward.module({{f, {2, 3, 6, 8}}, {f, {2, 4, 5, 2}}}), "grid_sampler_2d_backward");
    }
  }
}

}  // namespace
}  // namespace torch_tpu::ops
