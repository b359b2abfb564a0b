#include "runtime/address_space.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "runtime/slot.h"

namespace torch_tpu::runtime {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// The engine may be open in this process through another test; these need a process of their own.
class AddressSpaceLimitTest : public testing::Test {
 protected:
  AddressSpaceLimitTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

const char* inside(const Slot& slot, int64_t offset) { return static_cast<const char*>(slot.address()) + offset; }

TEST(AddressSpace, AddressesAreUniqueAlignedAndLeadToTheirSlot) {
  std::vector<std::unique_ptr<Slot>> slots;
  std::set<void*> seen;
  for (int64_t bytes : {0, 1, 63, 64, 65, 4096, 1 << 20, (1 << 20) + 1, 0, 0}) {
    slots.push_back(std::make_unique<Slot>(0, bytes));
    void* address = slots.back()->address();
    EXPECT_NE(address, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 64, 0u);
    EXPECT_TRUE(seen.insert(address).second);
  }
  for (const auto& slot : slots) {
    EXPECT_EQ(slot_at(slot->address()), slot.get());
    for (int64_t offset : {slot->bytes() / 2, slot->bytes() - 1})
      EXPECT_EQ(slot_at(inside(*slot, std::max<int64_t>(offset, 0))), slot.get());
    EXPECT_TRUE(is_device_address(slot->address()));
  }
}

TEST(AddressSpace, HostPointersAreNobodys) {
  int local = 0;
  auto heap = std::make_unique<int>(0);
  for (const void* pointer :
       {static_cast<const void*>(&local), static_cast<const void*>(heap.get()), static_cast<const void*>(nullptr),
        reinterpret_cast<const void*>(~uintptr_t{0}), reinterpret_cast<const void*>(uintptr_t{1} << 47)}) {
    EXPECT_EQ(slot_at(pointer), nullptr);
    EXPECT_FALSE(is_device_address(pointer));
  }
}

TEST(AddressSpace, FreedAddressesLeadNowhereAndAreUsedAgain) {
  auto slot = std::make_unique<Slot>(0, 1000);
  void* address = slot->address();
  slot.reset();
  EXPECT_EQ(slot_at(address), nullptr);
  EXPECT_TRUE(is_device_address(address));
  const int64_t regions = address_space::usage().regions;
  for (int i = 0; i < 100'000; ++i) Slot again(0, 1000);
  EXPECT_EQ(address_space::usage().regions, regions);
}

TEST(AddressSpace, TwoThousandGibibyteSlotsLive) {
  std::vector<std::unique_ptr<Slot>> slots;
  for (int i = 0; i < 2000; ++i) slots.push_back(std::make_unique<Slot>(0, kGiB));
  for (const auto& slot : slots) {
    ASSERT_EQ(slot_at(slot->address()), slot.get());
    ASSERT_EQ(slot_at(inside(*slot, kGiB - 1)), slot.get());
  }
}

TEST(AddressSpace, SlotsLargerThanARegionWork) {
  for (int64_t bytes : {65 * kGiB, 1024 * kGiB, int64_t{1} << 46}) {
    Slot slot(0, bytes), other(0, bytes);
    EXPECT_EQ(slot_at(inside(slot, bytes - 1)), &slot);
    EXPECT_EQ(slot_at(inside(other, 0)), &other);
  }
}

TEST(AddressSpace, ResizingKeepsTheAddressOrAllOfThem) {
  Slot slot(0, 4000);
  void* first = slot.address();
  EXPECT_FALSE(slot.set_bytes(0));
  EXPECT_FALSE(slot.set_bytes(4000));
  EXPECT_EQ(slot.address(), first);
  EXPECT_TRUE(slot.set_bytes(100'000));
  EXPECT_NE(slot.address(), first);
  EXPECT_EQ(slot_at(first), &slot);
  EXPECT_EQ(slot_at(inside(slot, 99'999)), &slot);
  int visits = 0;
  for_each_slot([&](Slot& each) { visits += &each == &slot; });
  EXPECT_EQ(visits, 1);
}

TEST(AddressSpace, ThreadsAllocateAndLookUpTogether) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::unique_ptr<Slot>> mine;
      for (int i = 0; i < 20'000; ++i) {
        mine.push_back(std::make_unique<Slot>(t, 64 << (i % 12)));
        wrong += slot_at(inside(*mine[i / 2 % mine.size()], 32)) != mine[i / 2 % mine.size()].get();
        if (mine.size() > 100) mine.erase(mine.begin(), mine.begin() + 50);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A snapshot locks slots while their writers create and destroy others: neither may wait for the other.
TEST(AddressSpace, VisitorsLockSlotsWhoseHoldersCreateAndDestroyOthers) {
  std::vector<std::unique_ptr<Slot>> held;
  for (int i = 0; i < 16; ++i) held.push_back(std::make_unique<Slot>(0, 256));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 0; !stop; ++i) {
      std::lock_guard lock(held[i % held.size()]->mutex);
      Slot temporary(0, 256);
    }
  });
  int64_t visited = 0;
  for (int i = 0; i < 200; ++i)
    for_each_slot([&](Slot& slot) {
      std::lock_guard lock(slot.mutex);
      ++visited;
    });
  stop = true;
  writer.join();
  EXPECT_GE(visited, 200 * 16);
}

TEST_F(AddressSpaceLimitTest, HostAccessFaults) {
  EXPECT_EXIT(
      {
        Slot slot(0, 64);
        *static_cast<volatile char*>(slot.address()) = 1;
      },
      [](int status) { return !(WIFEXITED(status) && WEXITSTATUS(status) == 0); }, "");
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kShadowMemory = true;  // the sanitizer itself maps terabytes: no address-space limit can be set
#else
constexpr bool kShadowMemory = false;
#endif

// Runs in a fresh process: exits with 0 if everything holds under the limit.
void run_under_limit(int64_t limit) {
  const rlimit wanted{static_cast<rlim_t>(limit), static_cast<rlim_t>(limit)};
  if (setrlimit(RLIMIT_AS, &wanted) != 0) _exit(2);
  std::vector<std::unique_ptr<Slot>> slots;
  for (int64_t bytes = 1; bytes <= 16 * kGiB; bytes *= 2) slots.push_back(std::make_unique<Slot>(0, bytes));
  for (int i = 0; i < 2000; ++i) slots.push_back(std::make_unique<Slot>(0, kGiB));
  for (const auto& slot : slots) {
    if (slot_at(slot->address()) != slot.get()) _exit(3);
    if (slot_at(inside(*slot, slot->bytes() - 1)) != slot.get()) _exit(4);
    if (!is_device_address(slot->address())) _exit(5);
  }
  std::set<void*> unique;
  for (const auto& slot : slots) unique.insert(slot->address());
  if (unique.size() != slots.size()) _exit(6);
  if (address_space::usage().reserved_bytes > limit / 4) _exit(7);
  void* heap = std::malloc(static_cast<size_t>(limit / 4));  // most of the room is left to others
  if (!heap) _exit(8);
  std::free(heap);
  void* gone = slots.back()->address();
  slots.pop_back();
  if (slot_at(gone) != nullptr) _exit(9);
  slots.clear();
  _exit(0);
}

TEST_F(AddressSpaceLimitTest, SmallerRegionsUnderAnAddressSpaceLimit) {
  if (kShadowMemory) GTEST_SKIP() << "AddressSanitizer's shadow memory exceeds any limit";
  EXPECT_EXIT(run_under_limit(64 * kGiB), testing::ExitedWithCode(0), "");
}

TEST_F(AddressSpaceLimitTest, NoRegionsUnderATightAddressSpaceLimit) {
  if (kShadowMemory) GTEST_SKIP() << "AddressSanitizer's shadow memory exceeds any limit";
  EXPECT_EXIT(run_under_limit(kGiB / 4), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace torch_tpu::runtime
