// Device memory as we account for it: live, peak, limit, out of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace torch_tpu::runtime {

class BufferValue;

struct MemoryCounters {
  int64_t allocated = 0, peak = 0, total_allocated = 0, total_freed = 0;  // bytes
  int64_t allocations = 0, allocations_peak = 0, allocations_total = 0, frees_total = 0;
  int64_t out_of_memory = 0, retries = 0;
  int64_t limit = -1;  // bytes; -1: none known
};

// Counts a buffer in and out; called by BufferValue only.
void account_allocation(BufferValue& value);
void account_free(BufferValue& value);

constexpr int kMaxDevices = 64;

// Is there room for so many bytes under the limit now? Costs two loads.
bool fits(int device, int64_t bytes);
// Asks for `bytes` more (outputs plus program temporaries) before a submission. When live + bytes would exceed the
// limit: runs the reclaimers, waits for outstanding work, looks again once; then kOutOfMemory with asked, live, peak,
// limit and the largest holders. Costs two atomic loads when there is no limit.
// Slot locks may be held by the caller: reclaimers must not take any.
Status admit(int device, int64_t bytes, std::string_view what);
// The same text for an out-of-memory report that came from the plugin.
Error out_of_memory(int device, int64_t bytes, std::string_view what);
// Called to free caches (scalar cache, program cache...). Registered once at start-up.
void add_reclaimer(std::function<void()> reclaim);
void run_reclaimers();

MemoryCounters counters(int device);
void reset_peak(int device);
void reset_accumulated(int device);
// The limit: TORCH_TPU_MEMORY_LIMIT, else the plugin's, times the per-process fraction.
void set_memory_fraction(int device, double fraction);
int64_t memory_limit(int device);
// What the plugin says about the device; counts where TORCH_TPU_MEMORY_LIMIT is not set. Called when the engine opens.
void set_plugin_memory_limit(int device, int64_t bytes);

}  // namespace torch_tpu::runtime
