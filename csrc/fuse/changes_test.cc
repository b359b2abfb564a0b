#include "fuse/changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/log.h"

namespace torch_tpu::fuse {
namespace {

StepRef step_of(const char* name, std::vector<hlo::Type> parameters, std::vector<hlo::Type> results) {
  auto function = std::make_shared<hlo::Function>();
  function->parameters = std::move(parameters);
  function->results = std::move(results);
  auto step = std::make_shared<Step>();
  step->id = next_step_id();
  step->name = name;
  step->function = std::move(function);
  return step;
}

constexpr const char *kNeg = "aten::neg", *kAdd = "aten::add.Tensor";
hlo::Type vector_of(int64_t n) { return {DType::kF32, {n}}; }
StepRef neg(int64_t n) { return step_of(kNeg, {vector_of(n)}, {vector_of(n)}); }
StepRef add(int64_t n) { return step_of(kAdd, {vector_of(n), vector_of(n)}, {vector_of(n)}); }

TEST(Changes, ADifferenceNamesTheOpAndTheShape) {
  const StepRef same = add(4);
  const std::vector<StepRef> now{same, neg(4)}, before{same, neg(5)};
  EXPECT_EQ(difference(now, before), "op 2 of 2, aten::neg: operand 1 is tensor<4xf32> here, tensor<5xf32> before");
  EXPECT_EQ(difference(std::vector{neg(4)}, std::vector{neg(4)}),
            "op 1 of 1, aten::neg: a value or a view that is part of its program differs");
  EXPECT_EQ(difference(now, now), "the same ops in the same shapes are applied to other tensors among themselves");
  EXPECT_EQ(difference(std::vector{step_of(kAdd, {}, {vector_of(2)})}, std::vector{add(2)}),
            "op 1 of 1, aten::add.Tensor: 0 operands here, 2 before");
}

TEST(Changes, ASequenceThatKeepsChangingIsLoggedOnce) {
  Changes changes;
  log::set_level(log::Level::kInfo);
  testing::internal::CaptureStderr();
  EXPECT_EQ(changes.note(std::vector{add(1), neg(1)}), "");
  for (int64_t n = 2; n <= 3 * Changes::kMany; ++n)
    EXPECT_NE(changes.note(std::vector{add(n), neg(n)}).find("is tensor<" + std::to_string(n) + "xf32> here"),
              std::string::npos);
  const std::string written = testing::internal::GetCapturedStderr();
  log::set_level(log::Level::kWarn);
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 1) << written;
  EXPECT_NE(written.find("2 ops from aten::add.Tensor to aten::neg came in 16 forms"), std::string::npos) << written;
}

}  // namespace
}  // namespace torch_tpu::fuse
