#include "store/background.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/statistics.h"
#include "runtime/test_engine.h"
#include "store/program_store.h"

namespace torch_tpu::store {
namespace {

using runtime::testing::engine;

TEST(Background, RunsInOrderOneAtATime) {
  std::vector<int> order;
  std::atomic<int> inside{0};
  for (int i = 0; i < 5; ++i)
    background::enqueue([&order, &inside, i] {
      EXPECT_EQ(inside.fetch_add(1), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      order.push_back(i);
      inside.fetch_sub(1);
    });
  background::wait();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(Background, StartsNothingWhileAnOpWaitsForACompile) {
  std::atomic<bool> ran{false};
  {
    background::ForegroundCompile waiting;
    background::enqueue([&] { ran = true; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(ran);
  }
  background::wait();
  EXPECT_TRUE(ran);
}

TEST(Background, WaitWithNothingToDoReturns) { background::wait(); }

Request fast_request(int64_t count, int64_t elements) {
  Request request;
  request.text = runtime::testing::doubling(count);
  request.profile = Profile::kFast;
  request.op = "aten::add.Tensor";
  request.elements = elements;
  return request;
}

// Runs "worth it" after this many runs, so one more must have started the better compile.
int64_t runs_until_hot(const ProgramRef& program) { return program->runs_left.load(); }

TEST(HotPrograms, AreCompiledInFullInTheBackground) {
  // A million elements' worth of loss per run makes it hot after a few dozen runs.
  const ProgramRef program = get(engine().client(), fast_request(1237, 1'000'000)).value();
  ASSERT_NE(program->upgrade, nullptr);
  const int64_t due = runs_until_hot(program);
  ASSERT_GT(due, 1);
  const int64_t before = runtime::totals().background_compiles, waited = runtime::totals().compiles;
  for (int64_t i = 1; i < due; ++i) EXPECT_EQ(&current(program), program.get());
  background::wait();
  EXPECT_EQ(program->better.load(), nullptr);
  (void)current(program);
  background::wait();
  const Program& better = current(program);
  EXPECT_NE(&better, program.get());
  EXPECT_EQ(better.upgrade, nullptr);
  EXPECT_EQ(runtime::totals().background_compiles - before, 1);
  EXPECT_EQ(runtime::totals().compiles, waited);
  const CompileRecord last = compile_log().back();
  EXPECT_TRUE(last.background);
  EXPECT_NE(last.why.find("in the background"), std::string::npos) << last.why;
}

TEST(HotPrograms, SmallOnesTakeMillionsOfRuns) {
  const ProgramRef program = get(engine().client(), fast_request(5, 5)).value();
  EXPECT_GT(runs_until_hot(program), 1'000'000);
}

TEST(HotPrograms, FullProfileIsNotCounted) {
  Request request = fast_request(1238, 1'000'000);
  request.profile = Profile::kFull;
  const ProgramRef program = get(engine().client(), request).value();
  EXPECT_EQ(program->upgrade, nullptr);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(&current(program), program.get());
}

}  // namespace
}  // namespace torch_tpu::store
