#include "runtime/memory.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/slot.h"

namespace torch_tpu::runtime {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// A value without a buffer: accounting does not look at it.
ValueRef value_of(int device, int64_t mib) {
  return ValueRef(new BufferValue(pjrt::Buffer(), {DType::kF32, {mib, kMiB / 4}}, device, mib * kMiB));
}

// Each test has a device of its own, so that none depends on another's history.
TEST(Memory, CountersAddUp) {
  constexpr int kDevice = 40;
  {
    ValueRef a = value_of(kDevice, 2), b = value_of(kDevice, 3);
    const MemoryCounters now = counters(kDevice);
    EXPECT_EQ(now.allocated, 5 * kMiB);
    EXPECT_EQ(now.peak, 5 * kMiB);
    EXPECT_EQ(now.allocations, 2);
    ValueRef shared = a;
    EXPECT_EQ(counters(kDevice).allocated, 5 * kMiB);
    EXPECT_EQ(a.use_count(), 2);
  }
  MemoryCounters now = counters(kDevice);
  EXPECT_EQ(now.allocated, 0);
  EXPECT_EQ(now.peak, 5 * kMiB);
  EXPECT_EQ(now.total_allocated, 5 * kMiB);
  EXPECT_EQ(now.total_freed, 5 * kMiB);
  EXPECT_EQ(now.allocations_total, 2);
  EXPECT_EQ(now.frees_total, 2);
  EXPECT_EQ(now.allocations_peak, 2);

  ValueRef kept = value_of(kDevice, 1);
  reset_peak(kDevice);
  reset_accumulated(kDevice);
  now = counters(kDevice);
  EXPECT_EQ(now.peak, kMiB);
  EXPECT_EQ(now.allocated, kMiB);
  EXPECT_EQ(now.total_allocated, 0);
  EXPECT_EQ(now.total_freed, 0);
  EXPECT_EQ(now.allocations_total, 0);
  kept = {};
  now = counters(kDevice);
  EXPECT_EQ(now.total_freed, kMiB);
  EXPECT_EQ(now.frees_total, 1);
}

TEST(Memory, AdmitsUpToTheLimitAndNamesTheLargestHolders) {
  constexpr int kDevice = 41;
  EXPECT_TRUE(admit(kDevice, int64_t{1} << 50, "aten::empty").ok()) << "no limit is known";
  set_plugin_memory_limit(kDevice, 16 * kMiB);
  ValueRef a = value_of(kDevice, 4), b = value_of(kDevice, 4), c = value_of(kDevice, 6);
  ValueRef small(new BufferValue(pjrt::Buffer(), {DType::kBF16, {}}, kDevice, 2));
  EXPECT_TRUE(admit(kDevice, kMiB, "aten::add.Tensor").ok());
  const Status refused = admit(kDevice, 4 * kMiB, "aten::add.Tensor");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(
      refused.error().message,
      "aten::add.Tensor: out of memory on tpu:41, asked 4.00 MiB, live 14.00 MiB, peak 14.00 MiB, limit 16.00 MiB; "
      "largest: 2 x 4.00 MiB f32[4,262144], 1 x 6.00 MiB f32[6,262144]");
  EXPECT_EQ(counters(kDevice).out_of_memory, 1);
  EXPECT_EQ(counters(kDevice).retries, 1);
  c = {};
  EXPECT_TRUE(admit(kDevice, 4 * kMiB, "aten::add.Tensor").ok()) << "usable after the error";
  set_plugin_memory_limit(kDevice, -1);
}

TEST(Memory, ReclaimersRunBeforeGivingUp) {
  constexpr int kDevice = 42;
  set_plugin_memory_limit(kDevice, 8 * kMiB);
  static ValueRef cache;  // reclaimers are never taken back
  cache = value_of(kDevice, 6);
  add_reclaimer([] { cache = {}; });
  EXPECT_TRUE(admit(kDevice, 4 * kMiB, "aten::mm").ok());
  EXPECT_EQ(counters(kDevice).retries, 1);
  EXPECT_EQ(counters(kDevice).out_of_memory, 0);
  EXPECT_EQ(counters(kDevice).allocated, 0);
}

TEST(Memory, TheFractionScalesTheLimit) {
  constexpr int kDevice = 43;
  set_plugin_memory_limit(kDevice, 8 * kMiB);
  set_memory_fraction(kDevice, 0.5);
  EXPECT_EQ(memory_limit(kDevice), 4 * kMiB);
  EXPECT_FALSE(admit(kDevice, 5 * kMiB, "aten::mm").ok());
  EXPECT_EQ(counters(kDevice).limit, 4 * kMiB);
  set_memory_fraction(kDevice, 1.0);
  EXPECT_TRUE(admit(kDevice, 5 * kMiB, "aten::mm").ok());
  EXPECT_EQ(memory_limit(44), -1) << "other devices are untouched";
}

TEST(Memory, ThreadsCountTogether) {
  constexpr int kDevice = 45;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 5000; ++i)
        ValueRef value(new BufferValue(pjrt::Buffer(), {DType::kI8, {8192}}, kDevice, 8192));
    });
  for (auto& thread : threads) thread.join();
  const MemoryCounters now = counters(kDevice);
  EXPECT_EQ(now.allocated, 0);
  EXPECT_EQ(now.allocations_total, 20'000);
  EXPECT_EQ(now.total_freed, 20'000 * 8192);
  EXPECT_LE(now.peak, 4 * 8192);
}

}  // namespace
}  // namespace torch_tpu::runtime
