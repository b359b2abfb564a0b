// For tests: steps over f32[4], and the recording and reading of their values.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "fuse/region.h"
#include "hlo/builder.h"
#include "runtime/test_engine.h"

namespace torch_tpu::fuse::testing {

using runtime::ValueRef;
using runtime::testing::engine;
using runtime::testing::upload;

// Regions that another run left in the user's store would be ready too soon. Set before the store looks.
inline const bool without_disk = setenv("TORCH_TPU_CACHE", "0", 1) == 0;

inline const hlo::Type kF4{DType::kF32, {4}};

inline std::shared_ptr<Step> finished_step(const char* name, hlo::Builder& b, const hlo::Value& result) {
  auto function = std::make_shared<hlo::Function>();
  store::Request request;
  request.text = b.finish({result}, "main", function.get()).take();
  request.op = name;
  auto step = std::make_shared<Step>();
  step->id = next_step_id();
  step->name = name;
  step->program = store::get(engine().client(), request).take();
  step->function = std::move(function);
  return step;
}

// A step of f32[4] operands and one result, which may take the memory of the first.
inline StepRef step_of(const char* name, int operands,
                       const std::function<hlo::Value(hlo::Builder&, hlo::Values)>& rule) {
  hlo::Builder b;
  hlo::Values xs;
  for (int i = 0; i < operands; ++i) xs.push_back(b.parameter(kF4));
  const hlo::Value result = rule(b, xs);
  b.donate(0, 0);
  std::shared_ptr<Step> step = finished_step(name, b, result);
  step->donations = {{0, 0}};
  return step;
}

inline const StepRef& add() {
  static const StepRef step =
      step_of("add", 2, [](hlo::Builder& b, const hlo::Values& x) { return b.add(x[0], x[1]); });
  return step;
}
inline const StepRef& square() {
  static const StepRef step =
      step_of("square", 1, [](hlo::Builder& b, const hlo::Values& x) { return b.mul(x[0], x[0]); });
  return step;
}

// Where the calling thread records.
inline ValueRef record(const StepRef& step, std::vector<ValueRef> inputs) {
  ValueRef output;
  Region::recording()->record(step, 0, inputs, {&output, 1});
  return output;
}

inline std::vector<float> read(const ValueRef& value) {
  const Status status = runtime::force(value);
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(value->buffer.ready_event().wait().ok());
  const auto* data = static_cast<const float*>(value->buffer.host_pointer().value());
  return {data, data + 4};
}

// Every thread records while one is open.
class Always {
 public:
  Always() { set_recording(true); }
  ~Always() { set_recording(false); }
  Always(const Always&) = delete;
  Always& operator=(const Always&) = delete;
};

}  // namespace torch_tpu::fuse::testing
