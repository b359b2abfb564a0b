#include "fuse/region.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "hlo/builder.h"
#include "runtime/statistics.h"
#include "runtime/test_engine.h"
#include "store/background.h"

namespace torch_tpu::fuse {
namespace {

using runtime::ValueRef;
using runtime::testing::engine;
using runtime::testing::upload;

// Regions that another run left in the user's store would be ready too soon. Set before the store looks.
const bool without_disk = setenv("TORCH_TPU_CACHE", "0", 1) == 0;

const hlo::Type kF4{DType::kF32, {4}};

// A step of one or two f32[4] operands and one result, which may take the memory of the first.
StepRef step_of(const char* name, int operands, const std::function<hlo::Value(hlo::Builder&, hlo::Values)>& rule) {
  hlo::Builder b;
  hlo::Values xs;
  for (int i = 0; i < operands; ++i) xs.push_back(b.parameter(kF4));
  const hlo::Value result = rule(b, xs);
  b.donate(0, 0);
  auto function = std::make_shared<hlo::Function>();
  store::Request request;
  request.text = b.finish({result}, "main", function.get()).take();
  request.op = name;
  auto step = std::make_shared<Step>();
  step->id = next_step_id();
  step->name = name;
  step->program = store::get(engine().client(), request).take();
  step->function = std::move(function);
  step->donations = {{0, 0}};
  return step;
}

const StepRef& add() {
  static const StepRef step =
      step_of("add", 2, [](hlo::Builder& b, const hlo::Values& x) { return b.add(x[0], x[1]); });
  return step;
}
const StepRef& square() {
  static const StepRef step =
      step_of("square", 1, [](hlo::Builder& b, const hlo::Values& x) { return b.mul(x[0], x[0]); });
  return step;
}

ValueRef record(const StepRef& step, std::vector<ValueRef> inputs) {
  ValueRef output;
  Region::recording()->record(step, 0, inputs, {&output, 1});
  return output;
}

std::vector<float> read(const ValueRef& value) {
  const Status status = runtime::force(value);
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(value->buffer.ready_event().wait().ok());
  const auto* data = static_cast<const float*>(value->buffer.host_pointer().value());
  return {data, data + 4};
}

const void* address(const ValueRef& value) { return value->buffer.host_pointer().value(); }

TEST(Region, NothingIsRecordedOutsideOfARecording) { EXPECT_EQ(Region::recording(), nullptr); }

TEST(Region, RunsAtTheEndOfTheOutermostRecording) {
  const ValueRef a = upload({1, 2, 3, 4}), b = upload({10, 20, 30, 40});
  Recording outer;
  ValueRef sum, result;
  {
    Recording inner;
    sum = record(add(), {a, b});
    result = record(square(), {sum});
    EXPECT_TRUE(inner.finish().ok());
  }
  EXPECT_NE(result->debtor.load(), nullptr);
  EXPECT_TRUE(outer.finish().ok());
  EXPECT_EQ(result->debtor.load(), nullptr);
  EXPECT_EQ(read(sum), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(read(result), (std::vector<float>{121, 484, 1089, 1936}));
}

TEST(Region, AReaderMakesItRun) {
  Recording recording;
  const ValueRef sum = record(add(), {upload({1, 2, 3, 4}), upload({1, 1, 1, 1})});
  std::vector<float> seen;
  std::thread([&] { seen = read(sum); }).join();
  EXPECT_EQ(seen, (std::vector<float>{2, 3, 4, 5}));
  // What is recorded afterwards starts anew.
  EXPECT_EQ(read(record(square(), {sum})), (std::vector<float>{4, 9, 16, 25}));
}

TEST(Region, OverwritesOnlyWhatNobodyElseHolds) {
  ValueRef mine = upload({1, 2, 3, 4}), shared = upload({1, 2, 3, 4});
  const ValueRef other_holder = shared;
  const void *mine_at = address(mine), *shared_at = address(shared);
  Recording recording;
  mine = record(square(), {std::exchange(mine, {})});
  shared = record(square(), {std::exchange(shared, {})});
  ASSERT_TRUE(recording.finish().ok());
  EXPECT_EQ(address(mine), mine_at);
  EXPECT_NE(address(shared), shared_at);
  EXPECT_EQ(read(other_holder), (std::vector<float>{1, 2, 3, 4}));
}

// (a + b)^2, with the sum dropped before the run, over and over.
std::vector<float> run_once(ValueRef& accumulator, const ValueRef& b) {
  Recording recording;
  accumulator = record(add(), {std::exchange(accumulator, {}), b});
  const ValueRef result = record(square(), {record(add(), {accumulator, b})});
  EXPECT_TRUE(recording.finish().ok());
  return read(result);
}

TEST(Region, ThatReturnsBecomesOneProgram) {
  ValueRef accumulator = upload({0, 0, 0, 0});
  const ValueRef b = upload({1, 2, 3, 4});
  const void* place = address(accumulator);
  const int64_t joint_before = runtime::totals().joint_executions;
  int64_t runs = 0;
  while (runtime::totals().joint_executions == joint_before && runs < 20'000) {
    ++runs;
    const auto n = static_cast<float>(runs + 1);
    ASSERT_EQ(run_once(accumulator, b), (std::vector<float>{n * n, 4 * n * n, 9 * n * n, 16 * n * n}));
    if (runs % 1000 == 0) store::background::wait();
  }
  EXPECT_GT(runs, 2);
  EXPECT_EQ(runtime::totals().joint_executions - joint_before, 1) << "after " << runs << " runs";
  const int64_t launched = runtime::totals().executions;
  const auto n = static_cast<float>(++runs + 1);
  EXPECT_EQ(run_once(accumulator, b), (std::vector<float>{n * n, 4 * n * n, 9 * n * n, 16 * n * n}));
  EXPECT_EQ(runtime::totals().executions - launched, 1);
  EXPECT_EQ(address(accumulator), place);  // the joint overwrites it as the steps did
  // Another holder: the same program, another place.
  const ValueRef holder = accumulator;
  const std::vector<float> before = read(holder);
  (void)run_once(accumulator, b);
  EXPECT_NE(address(accumulator), place);
  EXPECT_EQ(read(holder), before);
}

TEST(Region, AFailureStaysInWhatDependsOnIt) {
  Recording recording;
  const ValueRef bad = upload({1, 2, 3, 4});
  bad->failure = std::make_unique<const Error>(Error{ErrorCode::kInternal, "made to fail"});
  const ValueRef depends = record(square(), {bad});
  const ValueRef fine = record(square(), {upload({1, 2, 3, 4})});
  const Status status = recording.finish();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "made to fail");
  EXPECT_FALSE(runtime::force(depends).ok());
  EXPECT_EQ(read(fine), (std::vector<float>{1, 4, 9, 16}));
  // Told once.
  Recording next;
  EXPECT_TRUE(next.finish().ok());
}

TEST(Region, ManyThreadsRecordAndReadEachOthersValues) {
  std::vector<std::thread> threads;
  std::vector<ValueRef> mailbox(4);
  std::mutex mutex;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        Recording recording;
        ValueRef value = record(add(), {upload({1, 1, 1, 1}), upload({0, 1, 2, 3})});
        value = record(square(), {value});
        ValueRef received;
        {
          std::lock_guard lock(mutex);
          mailbox[t] = value;
          received = mailbox[(t + 1) % 4];
        }
        if (received) {
          EXPECT_EQ(read(received), (std::vector<float>{1, 4, 9, 16}));
        }
        EXPECT_TRUE(recording.finish().ok());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace torch_tpu::fuse
