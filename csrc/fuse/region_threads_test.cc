// Several threads record, read one another's values, drop them and make one another's regions run, while programs of
// regions are compiled in the background. `make tsan` runs these under ThreadSanitizer; the values are checked anyway.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "fuse/test_steps.h"
#include "runtime/hooks.h"
#include "runtime/late_error.h"
#include "runtime/statistics.h"
#include "runtime/stream.h"
#include "store/background.h"

namespace torch_tpu::fuse {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the steps

constexpr int kThreads = 4;

// A value and what its elements are, all four alike.
struct Known {
  ValueRef value;
  float want = 0;
};

// Exact whether it is rounded once or twice, and never out of range.
float mean_of(float a, float b) { return 0.5F * a + 0.5F * b; }
const StepRef& mean() {
  static const StepRef step = step_of("mean", 2, [](hlo::Builder& b, const hlo::Values& x) {
    const hlo::Value half = b.constant(kF4, 0.5);
    return b.add(b.mul(half, x[0]), b.mul(half, x[1]));
  });
  return step;
}
const StepRef& negative() {
  static const StepRef step = step_of("negative", 1, [](hlo::Builder& b, const hlo::Values& x) { return b.neg(x[0]); });
  return step;
}

// As the seam does it: what another region owes is made first, and a thread that does not record runs its op.
ValueRef run(const StepRef& step, std::vector<ValueRef> inputs) {
  Region* const region = Region::recording();
  for (const ValueRef& input : inputs) {
    const runtime::Debtor* debtor = input->debtor.load(std::memory_order_acquire);
    if (debtor != region) {
      EXPECT_TRUE(runtime::force(input).ok());
    }
  }
  ValueRef output;
  if (region != nullptr) {
    region->record(step, 0, inputs, {&output, 1});
    return output;
  }
  std::vector<PJRT_Buffer*> arguments;
  for (const ValueRef& input : inputs) arguments.push_back(input->buffer.get());
  const std::vector<int64_t> kept{0};
  PJRT_Buffer* result = nullptr;
  EXPECT_TRUE(launch({step->name, step->program, 0, 0, arguments, kept}, {&result, 1}).ok());
  Region::observe(*step);
  return ValueRef(new runtime::BufferValue(pjrt::Buffer(&engine().client(), result), kF4, 0, 16));
}

Known fresh(float x) { return {upload({x, x, x, x}), x}; }
Known mean(const Known& a, const Known& b) { return {run(mean(), {a.value, b.value}), mean_of(a.want, b.want)}; }
// The last reference moves into the region, so that the memory may be taken over.
Known negative(Known a) { return {run(negative(), {std::exchange(a.value, {})}), -a.want}; }
void expect(const Known& k) { EXPECT_EQ(read(k.value), std::vector<float>(4, k.want)); }

// What threads hand one another.
class Mailbox {
 public:
  void put(size_t place, Known known) {
    std::lock_guard lock(mutex_);
    std::swap(places_[place], known);  // what lay there dies outside of the lock, in this thread
  }
  Known look(size_t place) {
    std::lock_guard lock(mutex_);
    return places_[place];
  }
  Known take(size_t place) {
    std::lock_guard lock(mutex_);
    return std::exchange(places_[place], {});
  }

 private:
  std::mutex mutex_;
  std::array<Known, 8> places_;
};

void in_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
}

// One program of random ops over a thread's own values and those in the mailbox.
void random_ops(Mailbox& mailbox, unsigned seed, int ops) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  std::vector<Known> mine{fresh(1), fresh(2), fresh(static_cast<float>(seed % 7))};
  for (int i = 0; i < ops; ++i) {
    Known& one = mine[below(mine.size())];
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        one = mean(one, mine[below(mine.size())]);
        break;
      case 3:
      case 4:
        one = negative(std::exchange(one, {}));
        break;
      case 5:
        if (mine.size() < 8) mine.push_back(Known(one));
        break;
      case 6:
        if (mine.size() > 2) mine.erase(mine.begin() + static_cast<int64_t>(below(mine.size())));
        break;
      case 7:
        mailbox.put(below(8), one);
        break;
      case 8:
        if (Known known = mailbox.look(below(8)); known.value) expect(known);
        break;
      case 9:
        if (Known known = mailbox.take(below(8)); known.value) one = mean(std::move(known), one);
        break;
      case 10:
        expect(one);
        break;
      default:
        if (below(4) == 0) {
          EXPECT_TRUE(runtime::synchronize_device(0).ok());
        } else if (below(2) == 0) {
          Recording list;
          one = mean(one, one);
          one = negative(std::exchange(one, {}));
          EXPECT_TRUE(list.finish().ok());
        } else {
          one = fresh(static_cast<float>(below(9)));
        }
    }
  }
  for (const Known& known : mine) expect(known);
}

class RegionThreads : public ::testing::Test {
 protected:
  // Each test is a process of its own in ctest; the steps are compiled before the threads start.
  static void SetUpTestSuite() {
    setenv("TORCH_TPU_FUSE_AFTER", "3", 0);
    (void)mean();
    (void)negative();
  }
  void TearDown() override { store::background::wait(); }
};

TEST_F(RegionThreads, RandomOpsOverSharedValues) {
  Always always;
  Mailbox mailbox;
  for (unsigned round = 0; round < 20; ++round)
    in_threads(kThreads, [&](int t) { random_ops(mailbox, 100 * round + static_cast<unsigned>(t), 1000); });
  for (size_t place = 0; place < 8; ++place)
    if (const Known known = mailbox.look(place); known.value) expect(known);
}

// Every thread repeats a loop of its own, so regions are compiled and swapped in while others are recorded.
TEST_F(RegionThreads, LoopsWhoseProgramsAreCompiledMeanwhile) {
  Always always;
  Mailbox mailbox;
  std::atomic<bool> done{false};
  const int64_t joint_before = runtime::totals().joint_executions;
  std::thread reader([&] {
    while (!done) {
      for (size_t place = 0; place < kThreads; ++place)
        if (const Known known = mailbox.look(place); known.value) expect(known);
      runtime::hooks::run_recorded(0);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
  });
  in_threads(kThreads, [&](int t) {
    Known state = fresh(static_cast<float>(t));
    for (int round = 0; round < 1000; ++round) {
      const Known input = fresh(static_cast<float>(round % 16));
      for (int layer = 0; layer < 3 + t; ++layer) state = mean(negative(std::exchange(state, {})), input);
      if (round % 7 == t) mailbox.put(static_cast<size_t>(t), state);
      if (round % 3 == 0) expect(state);
      if (round % 100 == 50) store::background::wait();
    }
    expect(state);
  });
  done = true;
  reader.join();
  EXPECT_GT(runtime::totals().joint_executions, joint_before);
}

// A region outlives its thread, and its values do.
TEST_F(RegionThreads, ThreadsThatComeAndGo) {
  Always always;
  Mailbox mailbox;
  for (int generation = 0; generation < 200; ++generation) {
    in_threads(kThreads, [&](int t) {
      const auto place = static_cast<size_t>(t);
      Known known = mailbox.take((place + 1) % kThreads);
      if (!known.value) known = fresh(8);
      const Known input = fresh(static_cast<float>(generation));
      for (int i = 0; i < 3; ++i) known = mean(known, input);
      mailbox.put(place, std::move(known));
    });
    if (const Known known = mailbox.look(static_cast<size_t>(generation) % kThreads); known.value) expect(known);
  }
}

TEST_F(RegionThreads, TheModeChangesWhileThreadsRecord) {
  std::atomic<bool> done{false};
  std::thread switching([&] {
    for (bool on = true; !done; on = !on) {
      set_recording(on);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    set_recording(false);
  });
  Mailbox mailbox;
  in_threads(kThreads, [&](int t) { random_ops(mailbox, 7000 + static_cast<unsigned>(t), 1500); });
  done = true;
  switching.join();
}

TEST_F(RegionThreads, AFailureReachesOnlyWhatDependsOnIt) {
  Always always;
  in_threads(kThreads, [](int t) {
    for (int round = 0; round < 100; ++round) {
      Known fine = fresh(4);
      ValueRef bad = upload({1, 1, 1, 1});
      bad->failure = std::make_shared<runtime::Failure>(Error{ErrorCode::kInternal, "made to fail"});
      for (int i = 0; i <= t; ++i) {
        fine = negative(mean(fine, fine));
        if (Region* region = Region::recording()) {
          ValueRef output;
          std::vector<ValueRef> inputs{bad, fine.value};
          region->record(mean(), 0, inputs, {&output, 1});
          bad = std::move(output);
        }
      }
      ValueRef elsewhere = bad;
      std::thread([&] { EXPECT_EQ(runtime::force(elsewhere).error().message, "made to fail"); }).join();
      expect(fine);
    }
  });
  EXPECT_TRUE(runtime::synchronize_device(0).ok());  // every failure was told by a read
}

// As the seam writes a storage: under the slot's lock, the newest value becomes the operand, and its successor takes
// its place. No write is lost, and no two threads wait for each other.
TEST_F(RegionThreads, WritesOfOneSlot) {
  Always always;
  runtime::Slot slot(0, 16), other(0, 16);
  slot.value = upload({0, 0, 0, 0});
  other.value = upload({0, 0, 0, 0});
  (void)add();
  const ValueRef one = upload({1, 1, 1, 1});
  const auto increment = [&](runtime::Slot& written) {
    while (true) {
      Region* const region = Region::recording();
      ValueRef newest;
      {
        std::lock_guard lock(written.mutex);
        const runtime::Debtor* debtor = written.value->debtor.load(std::memory_order_acquire);
        if (region != nullptr && (debtor == nullptr || debtor == region)) {
          ValueRef output;
          std::vector<ValueRef> inputs{std::move(written.value), one};
          region->record(add(), 0, inputs, {&output, 1});
          written.value = std::move(output);
          return;
        }
        newest = written.value;
      }
      EXPECT_TRUE(runtime::force(newest).ok());
      if (region == nullptr) Region::observe(*add());
    }
  };
  constexpr int kWrites = 300;
  in_threads(kThreads, [&](int t) {
    for (int i = 0; i < kWrites; ++i) {
      increment((i + t) % 2 == 0 ? slot : other);
      if (i % 50 == t) (void)runtime::synchronize_device(0);
    }
  });
  EXPECT_EQ(read(slot.value).front() + read(other.value).front(), static_cast<float>(kThreads * kWrites));
}

// Flags are recorded as any result, and looked at by whoever synchronises.
TEST_F(RegionThreads, FlagsOfRecordedOps) {
  Always always;
  const hlo::Type word{DType::kI32, {}};
  hlo::Builder b;
  const hlo::Value x = b.parameter(word);
  const StepRef flag = finished_step("flag", b, b.add(x, x));
  const auto upload_word = [&](int32_t value) {
    return ValueRef(
        new runtime::BufferValue(engine().client().from_host(&value, DType::kI32, {}, 0).take(), word, 0, 4));
  };
  constexpr int kRounds = 400;
  std::atomic<int> told{0}, set{0};
  in_threads(kThreads, [&](int t) {
    for (int i = 0; i < kRounds; ++i) {
      const bool wrong = (i + t) % 40 == 0;
      ValueRef input = upload_word(wrong ? 1 : 0);
      if (Region* region = Region::recording()) {
        ValueRef output;
        region->record(flag, 0, {&input, 1}, {&output, 1});
        set += wrong;
        runtime::watch_flag(output, "flag", "");
      }
      if (i % 10 == 0 && !runtime::check_flags(0, /*wait=*/i % 20 == 0).ok()) ++told;
    }
  });
  if (!runtime::check_flags(0, /*wait=*/true).ok()) ++told;
  EXPECT_TRUE(runtime::check_flags(0, /*wait=*/true).ok());
  EXPECT_GT(set, 0);
  EXPECT_GT(told, 0);
  EXPECT_LE(told, set);
}

}  // namespace
}  // namespace torch_tpu::fuse
