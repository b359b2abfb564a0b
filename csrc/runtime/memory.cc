#include "runtime/memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>

#include "base/env.h"
#include "pjrt/client.h"
#include "runtime/slot.h"
#include "runtime/stream.h"

namespace torch_tpu::runtime {

// Values of at least this size are linked into a list, for out-of-memory texts. Smaller ones would pay the lock on the
// path where an op costs two microseconds, and are never what filled a device.
constexpr int64_t kLargeValue = 4096;
constexpr size_t kHoldersShown = 5;

class HolderList {
 public:
  void add(BufferValue& value) {
    std::lock_guard lock(mutex_);
    value.next_ = head_;
    if (head_) head_->previous_ = &value;
    head_ = &value;
  }

  void remove(BufferValue& value) {
    std::lock_guard lock(mutex_);
    if (value.previous_)
      value.previous_->next_ = value.next_;
    else
      head_ = value.next_;
    if (value.next_) value.next_->previous_ = value.previous_;
  }

  // (bytes of one, type) -> how many.
  std::map<std::pair<int64_t, std::string>, int64_t> groups();

 private:
  std::mutex mutex_;
  BufferValue* head_ = nullptr;
};

namespace {

constexpr int64_t kNoLimit = INT64_MAX;

// Totals only grow; what is live is their difference. One atomic addition each way per quantity, and the statistics add
// up whatever is running meanwhile.
struct Quantity {
  std::atomic<int64_t> gained{0}, lost{0}, peak{0};

  int64_t live() const {
    const int64_t lost_before = lost.load(std::memory_order_relaxed);
    return gained.load(std::memory_order_relaxed) - lost_before;
  }
  void gain(int64_t amount) {
    const int64_t now =
        gained.fetch_add(amount, std::memory_order_relaxed) + amount - lost.load(std::memory_order_relaxed);
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
  void lose(int64_t amount) { lost.fetch_add(amount, std::memory_order_relaxed); }
};

struct alignas(64) Device {
  Quantity bytes, count;
  std::atomic<int64_t> out_of_memory{0}, retries{0};
  // What reset_accumulated() subtracts.
  std::atomic<int64_t> base_allocated{0}, base_freed{0}, base_count{0}, base_frees{0};
  std::atomic<int64_t> limit{kNoLimit};  // with the fraction applied
  std::atomic<int64_t> plugin_limit{-1};
  std::atomic<double> fraction{1.0};
  HolderList holders;
};

struct Memory {
  std::array<Device, kMaxDevices> devices;
  std::mutex reclaimer_mutex;
  std::vector<std::function<void()>> reclaimers;
  int64_t configured_limit = -1;

  Memory() {
    // A value that does not parse is reported when the engine opens.
    if (Result<int64_t> limit = env::bytes("TORCH_TPU_MEMORY_LIMIT"); limit.ok()) configured_limit = limit.value();
    for (Device& device : devices) refresh(device);
  }

  void refresh(Device& device) const {
    const int64_t whole = configured_limit >= 0 ? configured_limit : device.plugin_limit.load();
    const double fraction = device.fraction.load();
    device.limit.store(whole < 0 ? kNoLimit : fraction >= 1.0 ? whole : static_cast<int64_t>(whole * fraction));
  }
};

Memory& memory() {
  // Never destroyed: values die after static destructors.
  static Memory* const instance = new Memory;
  return *instance;
}

Device& device_of(int device) { return memory().devices[static_cast<size_t>(std::clamp(device, 0, kMaxDevices - 1))]; }

std::string in_words(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

// "f32[32768,32768]"
std::string short_name(const hlo::Type& type) {
  std::string text(hlo_name(type.dtype));
  text += '[';
  for (size_t i = 0; i < type.shape.size(); ++i) text += (i ? "," : "") + std::to_string(type.shape[i]);
  return text + ']';
}

std::string largest_holders(Device& device) {
  auto groups = device.holders.groups();
  std::vector<std::pair<int64_t, std::string>> lines;
  for (const auto& [key, count] : groups)
    lines.emplace_back(key.first * count, std::to_string(count) + " x " + in_words(key.first) + " " + key.second);
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kHoldersShown); ++i) text += (i ? ", " : "") + lines[i].second;
  return text;
}

}  // namespace

std::map<std::pair<int64_t, std::string>, int64_t> HolderList::groups() {
  std::map<std::pair<int64_t, std::string>, int64_t> found;
  std::lock_guard lock(mutex_);
  for (const BufferValue* value = head_; value; value = value->next_) ++found[{value->bytes, short_name(value->type)}];
  return found;
}

void account_allocation(BufferValue& value) {
  Device& d = device_of(value.device);
  d.bytes.gain(value.bytes);
  d.count.gain(1);
  if (value.bytes >= kLargeValue && !pjrt::abandoned()) d.holders.add(value);
}

void account_free(BufferValue& value) {
  Device& d = device_of(value.device);
  d.bytes.lose(value.bytes);
  d.count.lose(1);
  if (value.bytes >= kLargeValue && !pjrt::abandoned()) d.holders.remove(value);
}

bool fits(int device, int64_t bytes) {
  Device& d = device_of(device);
  const int64_t limit = d.limit.load(std::memory_order_relaxed);
  return limit == kNoLimit || d.bytes.live() <= limit - bytes;
}

Status admit(int device, int64_t bytes, std::string_view what) {
  if (fits(device, bytes)) return {};
  Device& d = device_of(device);
  d.retries.fetch_add(1, std::memory_order_relaxed);
  run_reclaimers();
  // What an in-flight program holds is given back when it ends. Its own error is reported by who reads its outputs.
  (void)wait_for_submissions(device);
  if (fits(device, bytes)) return {};
  return out_of_memory(device, bytes, what);
}

Error out_of_memory(int device, int64_t bytes, std::string_view what) {
  Device& d = device_of(device);
  d.out_of_memory.fetch_add(1, std::memory_order_relaxed);
  std::string text = std::string(what) + ": out of memory on tpu:" + std::to_string(device) + ", asked " +
                     in_words(bytes) + ", live " + in_words(d.bytes.live()) + ", peak " + in_words(d.bytes.peak.load());
  if (const int64_t limit = memory_limit(device); limit >= 0) text += ", limit " + in_words(limit);
  if (const std::string holders = largest_holders(d); !holders.empty()) text += "; largest: " + holders;
  return {ErrorCode::kOutOfMemory, std::move(text)};
}

void add_reclaimer(std::function<void()> reclaim) {
  Memory& m = memory();
  std::lock_guard lock(m.reclaimer_mutex);
  m.reclaimers.push_back(std::move(reclaim));
}

void run_reclaimers() {
  if (pjrt::abandoned()) return;
  Memory& m = memory();
  std::vector<std::function<void()>> reclaimers;
  {
    std::lock_guard lock(m.reclaimer_mutex);
    reclaimers = m.reclaimers;
  }
  for (const auto& reclaim : reclaimers) reclaim();
}

MemoryCounters counters(int device) {
  Device& d = device_of(device);
  MemoryCounters c;
  const int64_t freed = d.bytes.lost.load(), allocated = d.bytes.gained.load();
  const int64_t frees = d.count.lost.load(), allocations = d.count.gained.load();
  c.allocated = allocated - freed;
  c.peak = std::max(d.bytes.peak.load(), c.allocated);
  c.allocations = allocations - frees;
  c.allocations_peak = std::max(d.count.peak.load(), c.allocations);
  c.total_allocated = allocated - d.base_allocated.load();
  c.total_freed = freed - d.base_freed.load();
  c.allocations_total = allocations - d.base_count.load();
  c.frees_total = frees - d.base_frees.load();
  c.out_of_memory = d.out_of_memory.load();
  c.retries = d.retries.load();
  c.limit = memory_limit(device);
  return c;
}

void reset_peak(int device) {
  Device& d = device_of(device);
  d.bytes.peak.store(d.bytes.live());
  d.count.peak.store(d.count.live());
}

void reset_accumulated(int device) {
  Device& d = device_of(device);
  d.base_freed.store(d.bytes.lost.load());
  d.base_allocated.store(d.bytes.gained.load());
  d.base_frees.store(d.count.lost.load());
  d.base_count.store(d.count.gained.load());
  d.out_of_memory.store(0);
  d.retries.store(0);
}

void set_memory_fraction(int device, double fraction) {
  Device& d = device_of(device);
  d.fraction.store(std::clamp(fraction, 0.0, 1.0));
  memory().refresh(d);
}

int64_t memory_limit(int device) {
  const int64_t limit = device_of(device).limit.load(std::memory_order_relaxed);
  return limit == kNoLimit ? -1 : limit;
}

void set_plugin_memory_limit(int device, int64_t bytes) {
  Device& d = device_of(device);
  d.plugin_limit.store(bytes);
  memory().refresh(d);
}

}  // namespace torch_tpu::runtime
