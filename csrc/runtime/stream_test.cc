#include "runtime/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/test_engine.h"

namespace torch_tpu::runtime {
namespace {

using testing::compile;
using testing::engine;
using testing::submit;
using testing::upload;
using Clock = std::chrono::steady_clock;

// A program of about a tenth of a second, compiled once.
const pjrt::Executable& slow_program() {
  static const auto* const program = new pjrt::Executable(compile(testing::slow(1'000'000, 40)));
  return *program;
}

// Leaves one slow token on the device's current stream; its result is dropped at once.
void submit_slow(int device) {
  testing::Submitted submitted = submit(slow_program(), upload(std::vector<float>(1'000'000, 1.0F), device));
  ASSERT_TRUE(submitted.completion);
  leave_token(device, std::move(submitted.completion));
}

class StreamTest : public ::testing::Test {
 protected:
  void SetUp() override { engine(); }
  void TearDown() override {
    for (int device : {0, 1}) EXPECT_TRUE(synchronize_device(device).ok());
  }
};

TEST_F(StreamTest, TheCurrentDeviceAndStreamBelongToTheThread) {
  EXPECT_EQ(current_device(), 0);
  set_current_device(1);
  const Stream fresh = new_stream(1);
  EXPECT_NE(fresh.id, 0);
  EXPECT_NE(fresh, new_stream(1, -1));
  EXPECT_EQ(exchange_stream(fresh), (Stream{1, 0}));
  std::thread([] {
    EXPECT_EQ(current_device(), 0);
    EXPECT_EQ(current_stream(1), (Stream{1, 0}));
  }).join();
  EXPECT_EQ(current_stream(1), fresh);
  EXPECT_EQ(current_stream(0), (Stream{0, 0}));
  EXPECT_EQ(exchange_stream({1, 0}), fresh);
  set_current_device(0);
}

TEST_F(StreamTest, QueryTurnsTrueWhenWorkWhoseOutputsWereDroppedIsDone) {
  submit_slow(0);
  EXPECT_FALSE(query({0, 0}));
  EXPECT_EQ(outstanding(0), 1);
  EXPECT_TRUE(query({1, 0})) << "the other device is idle";
  EXPECT_TRUE(synchronize({0, 0}).ok());
  EXPECT_TRUE(query({0, 0}));
  EXPECT_EQ(outstanding(0), 0);
}

// The handle of what a running program overwrites: destroying it would wait for the program.
TEST_F(StreamTest, GivingUpAConsumedOperandDoesNotWait) {
  std::string text = testing::slow(1'000'000, 40);
  text.insert(text.find("%a: tensor<1000000xf32>") + 23, " {tf.aliasing_output = 0 : i32}");
  const pjrt::Executable program = compile(text);
  ValueRef operand = upload(std::vector<float>(1'000'000, 1.0F));
  testing::Submitted submitted = submit(program, operand);
  ASSERT_TRUE(operand->buffer.deleted());
  leave_token(0, std::move(submitted.completion));
  operand->consumed = true;
  operand = {};
  EXPECT_FALSE(submitted.result->buffer.ready_event().ready());
  EXPECT_TRUE(synchronize_device(0).ok());
  EXPECT_TRUE(submitted.result->buffer.ready_event().ready());
}

TEST_F(StreamTest, ADeviceSynchronisationCoversAllStreams) {
  const Stream other = new_stream(0);
  const Stream before = exchange_stream(other);
  submit_slow(0);
  exchange_stream(before);
  EXPECT_TRUE(query({0, 0})) << "the work belongs to the other stream";
  EXPECT_FALSE(query(other));
  EXPECT_TRUE(synchronize_device(0).ok());
  EXPECT_TRUE(query(other));
}

TEST_F(StreamTest, AStreamThatWaitsForAnEventIncludesItsWork) {
  EventRecord event;
  submit_slow(0);
  event.record({0, 0}, false);
  const Stream other = new_stream(0);
  EXPECT_TRUE(query(other));
  event.block(other);
  EXPECT_FALSE(query(other));
  EXPECT_TRUE(synchronize(other).ok());
  EXPECT_TRUE(event.query());
}

TEST_F(StreamTest, EventsCoverWhatWasSubmittedBeforeThem) {
  EventRecord idle, busy;
  EXPECT_FALSE(idle.recorded());
  EXPECT_TRUE(idle.query());
  idle.record({0, 0}, false);
  EXPECT_TRUE(idle.recorded());
  EXPECT_TRUE(idle.query());
  submit_slow(0);
  EXPECT_TRUE(idle.query()) << "recorded before the work";
  busy.record({0, 0}, false);
  EXPECT_FALSE(busy.query());
  EXPECT_TRUE(busy.synchronize().ok());
  EXPECT_TRUE(busy.query());
}

TEST_F(StreamTest, ElapsedTimeIsThatOfTheWorkBetween) {
  EventRecord begin, end, untimed;
  begin.record({0, 0}, true);
  const auto start = Clock::now();
  submit_slow(0);
  end.record({0, 0}, true);
  untimed.record({0, 0}, false);
  EXPECT_FALSE(begin.elapsed_to(end).ok()) << "not complete yet";
  ASSERT_TRUE(end.synchronize().ok());
  const double wall = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  const Result<double> elapsed = begin.elapsed_to(end);
  ASSERT_TRUE(elapsed.ok()) << elapsed.error().message;
  EXPECT_GT(elapsed.value(), 1.0);
  EXPECT_LE(elapsed.value(), wall + 50);
  EXPECT_LT(end.elapsed_to(begin).value(), 0);
  EXPECT_FALSE(begin.elapsed_to(untimed).ok());
  EXPECT_FALSE(begin.elapsed_to(EventRecord()).ok());
}

// A program small enough to run inside Execute is queued all the same when its input is not ready.
TEST_F(StreamTest, AnInlineProgramBehindUnfinishedWorkNeedsAToken) {
  const pjrt::Executable small = compile(R"(module { func.func @main(%x: tensor<1000000xf32>) -> tensor<4xf32> {
      %y = stablehlo.slice %x [0:4] : (tensor<1000000xf32>) -> tensor<4xf32> return %y : tensor<4xf32> } })");
  EXPECT_FALSE(needs_token(0, true));
  EXPECT_TRUE(needs_token(0, false));
  testing::Submitted first = submit(slow_program(), upload(std::vector<float>(1'000'000, 1.0F)));
  leave_token(0, std::move(first.completion));
  EXPECT_FALSE(needs_token(1, true)) << "the other device is idle";
  ASSERT_TRUE(needs_token(0, true));
  testing::Submitted second = submit(small, first.result);
  EXPECT_FALSE(second.completion.ready());
  leave_token(0, std::move(second.completion));
  EXPECT_EQ(outstanding(0), 2);
  EXPECT_TRUE(synchronize({0, 0}).ok());
  EXPECT_FALSE(needs_token(0, true));
}

TEST_F(StreamTest, ManySmallSubmissionsStayBounded) {
  const pjrt::Executable program = compile(testing::doubling(4096));
  ValueRef x = upload(std::vector<float>(4096, 1.0F));
  int64_t most = 0;
  for (int i = 0; i < 5000; ++i) {
    leave_token(0, submit(program, x).completion);
    most = std::max(most, outstanding(0));
  }
  EXPECT_LT(most, 2000);
  EXPECT_TRUE(synchronize({0, 0}).ok());
  EXPECT_EQ(outstanding(0), 0);
}

TEST_F(StreamTest, ThreadsSubmitAndSynchroniseTogether) {
  const pjrt::Executable program = compile(testing::doubling(4096));
  ValueRef x = upload(std::vector<float>(4096, 1.0F));
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      if (t % 2) exchange_stream(new_stream(0));
      for (int i = 0; i < 300; ++i) {
        leave_token(0, submit(program, x).completion);
        if (i % 50 == 0) failures += !synchronize(current_stream(0)).ok();
        if (i % 70 == 0) query({0, 0});
      }
      failures += !synchronize_device(0).ok();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_TRUE(synchronize_device(0).ok());
  EXPECT_EQ(outstanding(0), 0);
}

}  // namespace
}  // namespace torch_tpu::runtime
