#include "aten/allocator.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "aten/device.h"
#include "aten/storage.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

namespace torch_tpu::aten {

Result<int64_t> total_memory(int device) {
  const int64_t limit = runtime::memory_limit(device);
  if (limit >= 0) return limit;
  auto opened = runtime::Engine::get();
  if (!opened.ok()) return opened.error();
  const auto reported = opened.value()->client().device_memory(device);
  if (reported.ok() && reported.value().limit > 0) return reported.value().limit;
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
}

Result<std::pair<int64_t, int64_t>> memory_info(int device) {
  const auto total = total_memory(device);
  if (!total.ok()) return total.error();
  const int64_t used = runtime::counters(device).allocated;
  return std::pair<int64_t, int64_t>{std::max<int64_t>(0, total.value() - used), total.value()};
}

namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

void fill(StatArray& array, int64_t current, int64_t peak, int64_t allocated, int64_t freed) {
  Stat& stat = array[static_cast<size_t>(StatType::AGGREGATE)];
  stat.current = current;
  stat.peak = peak;
  stat.allocated = allocated;
  stat.freed = freed;
}

// PJRT owns the memory; this allocator hands out slots, which get their buffer from the program that first writes them.
struct Allocator final : public c10::DeviceAllocator {
  at::DataPtr allocate(size_t bytes) override { return allocate_slot(runtime::current_device(), bytes); }
  // A raw pointer could not carry its slot, so there is no raw interface.
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }

  // Shares the immutable buffer when whole slots are copied; PyTorch calls this for whole allocations only.
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    runtime::Slot* to = runtime::slot_at(destination);
    runtime::Slot* from = runtime::slot_at(source);
    TORCH_CHECK(to != nullptr && from != nullptr, "tpu: copy_data needs two tpu addresses");
    if (to == from) return;
    TORCH_CHECK(to->address() == destination && from->address() == source &&
                    to->bytes() == static_cast<int64_t>(count) && from->bytes() == static_cast<int64_t>(count) &&
                    to->device() == from->device(),
                "tpu: copy_data copies whole allocations of one device only");
    runtime::ValueRef value = read_slot(*from);
    std::lock_guard<std::mutex> lock(to->mutex);
    to->value = std::move(value);
    to->error.reset();
  }

  bool initialized() override { return runtime::Engine::opened(); }
  void emptyCache(c10::MempoolId_t) override { runtime::run_reclaimers(); }
  // Buffers stay alive until the programs that read them are done, whatever stream label those ran under.
  void recordStream(const at::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    run_recorded(device_index(index));
    const runtime::MemoryCounters now = runtime::counters(device_index(index));
    c10::CachingDeviceAllocator::DeviceStats stats;
    // Every buffer is its own segment: what is allocated, active and reserved is the same thing.
    for (StatArray* bytes :
         {&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes, &stats.requested_bytes})
      fill(*bytes, now.allocated, now.peak, now.total_allocated, now.total_freed);
    for (StatArray* count : {&stats.allocation, &stats.active, &stats.segment})
      fill(*count, now.allocations, now.allocations_peak, now.allocations_total, now.frees_total);
    stats.num_ooms = now.out_of_memory;
    stats.num_alloc_retries = now.retries;
    stats.num_device_alloc = now.allocations_total;
    stats.num_device_free = now.frees_total;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override { runtime::reset_accumulated(device_index(index)); }
  void resetPeakStats(c10::DeviceIndex index) override {
    run_recorded(device_index(index));
    runtime::reset_peak(device_index(index));
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    run_recorded(device_index(index));
    const auto info = take(memory_info(device_index(index)));
    return {static_cast<size_t>(info.first), static_cast<size_t>(info.second)};
  }
};

Allocator* allocator() {
  static auto* instance = new Allocator;  // leaked: storages may be freed after static destruction
  return instance;
}
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, allocator())

}  // namespace
}  // namespace torch_tpu::aten
