#include "fuse/region.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <thread>

#include "fuse/test_steps.h"
#include "runtime/hooks.h"
#include "runtime/statistics.h"
#include "runtime/stream.h"
#include "store/background.h"

namespace torch_tpu::fuse {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the steps

// The product of a matrix with itself: milliseconds of work.
constexpr int64_t kMatrix = 700;  // 700 million operations
const hlo::Type kMatrixType{DType::kF32, {kMatrix, kMatrix}};
const StepRef& product() {
  static const StepRef step = [] {
    hlo::Builder b;
    const hlo::Value x = b.parameter(kMatrixType);
    const hlo::Value y = b.dot(x, x, {{}, {}, {1}, {0}}, DType::kF32, hlo::Precision::kDefault);
    return finished_step("product", b, y);
  }();
  return step;
}
ValueRef matrix() {
  const std::vector<float> ones(kMatrix * kMatrix, 1.0F);
  auto buffer = engine().client().from_host(ones.data(), DType::kF32, {kMatrix, kMatrix}, 0);
  return ValueRef(new runtime::BufferValue(buffer.take(), kMatrixType, 0, kMatrix * kMatrix * 4));
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
  bad->failure = std::make_shared<runtime::Failure>(Error{ErrorCode::kInternal, "made to fail"});
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

ValueRef failing(int device = 0) {
  ValueRef value(new runtime::BufferValue({}, kF4, device, 0));
  value->failure = std::make_shared<runtime::Failure>(Error{ErrorCode::kInternal, "made to fail"});
  return value;
}

TEST(Region, AFailureIsToldByTheReadOrByTheSynchronisationOfItsDevice) {
  const Always always;
  const ValueRef read_first = record(square(), {failing()});
  EXPECT_FALSE(runtime::force(read_first).ok());
  EXPECT_TRUE(runtime::synchronize_device(0).ok());
  EXPECT_FALSE(runtime::force(read_first).ok());  // there still is no value

  const ValueRef unread = record(square(), {failing()});
  (void)runtime::query({0, 0});
  // The thread goes on with another device.
  std::vector<ValueRef> inputs{failing(1)}, outputs(1);
  Region::recording()->record(square(), 1, inputs, outputs);
  EXPECT_FALSE(runtime::synchronize_device(0).ok());
  EXPECT_TRUE(runtime::synchronize_device(0).ok());
  EXPECT_FALSE(runtime::synchronize_device(1).ok());
}

TEST(Region, RunByAnotherThreadItBelongsToItsOwnStream) {
  const Always always;
  const runtime::Stream stream = runtime::new_stream(0);
  const runtime::Stream before = runtime::exchange_stream(stream);
  const ValueRef value = record(product(), {matrix()});
  std::thread([&] { EXPECT_TRUE(runtime::force(value).ok()); }).join();
  EXPECT_TRUE(runtime::query({0, 0}));
  EXPECT_TRUE(runtime::synchronize(stream).ok());
  EXPECT_TRUE(value->buffer.ready_event().ready());
  runtime::exchange_stream(before);
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

// Until `done` or two seconds have passed.
bool soon(const std::function<bool()>& done) {
  for (int i = 0; i < 2000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return done();
}

TEST(Region, AResultThatIsNeededNowAndThenCostsOneMoreCompile) {
  const ValueRef a = upload({1, 2, 3, 4}), b = upload({3, 3, 3, 3});
  const auto round = [&](bool keep) {
    Recording recording;
    const ValueRef sum = record(add(), {a, b});
    ValueRef square_of_sum = record(square(), {sum});
    const ValueRef result = record(add(), {square_of_sum, b});
    if (!keep) square_of_sum = {};
    EXPECT_TRUE(recording.finish().ok());
    EXPECT_EQ(read(result), (std::vector<float>{19, 28, 39, 52}));
    if (keep) {
      EXPECT_EQ(read(square_of_sum), (std::vector<float>{16, 25, 36, 49}));
    }
  };
  // The worker, which pauses after a compile, looks at the disk first; the rounds after that lead to the compile.
  const auto rounds = [&](bool keep) {
    for (int i = 0; i < 5; ++i) {
      for (int j = 0; j < 1000; ++j) round(keep);
      store::background::wait();
    }
  };
  const auto joint_runs = [] { return runtime::totals().joint_executions.load(); };
  rounds(false);
  int64_t before = joint_runs();
  round(false);
  ASSERT_EQ(joint_runs() - before, 1);
  round(true);  // more than its program returns
  EXPECT_EQ(joint_runs() - before, 1);
  rounds(true);
  before = joint_runs();
  round(true);
  round(false);  // the same program; what nobody needs is dropped
  EXPECT_EQ(joint_runs() - before, 2);
}

// A product of matrices is worth its own launch: it runs while the next op is recorded.
TEST(Region, OfEnoughWorkRunsAtTheNextOp) {
  Recording recording;
  const ValueRef y = record(product(), {matrix()});
  EXPECT_NE(y->debtor.load(), nullptr);
  const ValueRef small = record(add(), {upload({1, 2, 3, 4}), upload({1, 2, 3, 4})});
  EXPECT_EQ(y->debtor.load(), nullptr);
  EXPECT_NE(small->debtor.load(), nullptr);
  EXPECT_EQ(read(small), (std::vector<float>{2, 4, 6, 8}));
}

TEST(Region, OfManyStepsRunsAtTheNextOp) {
  Recording recording;
  const ValueRef first = record(add(), {upload({0, 0, 0, 0}), upload({0, 0, 0, 0})});
  ValueRef value = first;
  int steps = 1;
  // No stretch of this sequence is followed by itself from the beginning on: it is not cut as a loop's round is.
  for (; first->debtor.load() != nullptr && steps < 2000; ++steps)
    value = std::popcount(static_cast<unsigned>(steps)) % 2 ? record(square(), {value}) : record(add(), {value, value});
  EXPECT_EQ(steps, 1025);
}

TEST(Region, IsOfOneDevice) {
  Recording recording;
  const ValueRef value = record(add(), {upload({1, 2, 3, 4}), upload({1, 2, 3, 4})});
  std::vector<ValueRef> inputs{upload({1, 2, 3, 4}, 1)}, outputs(1);
  Region::recording()->record(square(), 1, inputs, outputs);
  EXPECT_EQ(value->debtor.load(), nullptr);
  EXPECT_NE(outputs[0]->debtor.load(), nullptr);
  EXPECT_EQ(read(value), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(read(outputs[0]), (std::vector<float>{1, 4, 9, 16}));
}

TEST(Region, RunsWhenNothingIsRecordedForAWhileAndRemembersNoPart) {
  Always always;
  const size_t known = known_regions();
  const ValueRef a = upload({1, 2, 3, 4});
  const ValueRef sum = record(add(), {a, a});
  const ValueRef early = record(square(), {sum});
  ASSERT_TRUE(soon([&] { return early->debtor.load() == nullptr; }));
  EXPECT_EQ(known_regions(), known);
  // The rest of what would have been one region.
  const ValueRef late = record(square(), {early});
  const ValueRef last = record(add(), {late, late});
  EXPECT_EQ(read(last), (std::vector<float>{32, 512, 2592, 8192}));
  EXPECT_EQ(known_regions(), known);
}

TEST(Region, ThatChangesEachTimeLetsItsThreadRestUntilItRepeats) {
  Always always;
  ASSERT_NE(Region::recording(), nullptr);
  int regions = 0;
  while (Region::recording() != nullptr && regions < 100) {
    ++regions;
    ValueRef value = upload({1, 1, 1, 1});
    float expected = 1;
    for (int bit = 0; bit < 7; ++bit) {
      const bool doubles = (regions >> bit & 1) != 0;
      value = doubles ? record(add(), {value, value}) : record(square(), {value});
      expected = doubles ? 2 * expected : expected * expected;
    }
    EXPECT_EQ(read(value).front(), expected);
  }
  EXPECT_LT(regions, 30);
  std::vector<StepRef> round{add(), square(), add(), add()};
  for (int i = 0; i < 1000 && Region::recording() == nullptr; ++i)
    for (const StepRef& step : round)
      if (Region::recording() == nullptr) Region::observe(*step);
  EXPECT_NE(Region::recording(), nullptr);
}

// Forward here, backward in another thread, a step here again: are they recorded in one region? Not if the idle timer
// was quicker, on a busy machine.
bool one_region() {
  thread_local int64_t pass = -1;
  runtime::hooks::set_backward_pass([] { return pass; });
  const ValueRef forward = record(square(), {upload({1, 2, 3, 4})});
  auto* const region = static_cast<Recorder*>(forward->debtor.load());
  if (region == nullptr) return false;
  ValueRef backward;
  bool beside = true, another = true;
  std::thread([&] {
    beside = region->join();  // a thread that only runs beside this one
    pass = 7;
    if (region->join()) backward = record(add(), {forward, forward});
    pass = 8;
    another = Region::recording() == region;
  }).join();
  runtime::hooks::set_backward_pass(nullptr);
  EXPECT_FALSE(beside);
  EXPECT_FALSE(another);
  if (!backward || backward->debtor.load() != region) return false;
  const ValueRef step = record(square(), {backward});
  const bool same = step->debtor.load() == region;
  EXPECT_EQ(read(step), (std::vector<float>{4, 64, 324, 1024}));
  return same;
}

TEST(Region, ABackwardPassGoesOnInTheRegionOfItsForward) {
  Always always;
  (void)add();
  (void)square();
  int tries = 0;
  while (!one_region() && tries < 20) ++tries;
  EXPECT_LT(tries, 20);
}

}  // namespace
}  // namespace torch_tpu::fuse
