#include "aten/memory_trace.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>

#include "pjrt/client.h"

namespace torch_tpu::aten {
namespace {

struct Trace {
  std::atomic<bool> on{false};
  std::atomic<int64_t> frames{0};
  std::atomic<StackSource> stack_source{nullptr};
  std::mutex mutex;
  size_t limit = 0;  // guarded by mutex, as is the next
  std::deque<TraceEntry> entries;
};

Trace& trace() {
  static auto* instance = new Trace;  // leaked: storages die after static destruction
  return *instance;
}

void add(TraceEntry entry) {
  using std::chrono::duration_cast, std::chrono::microseconds, std::chrono::system_clock;
  entry.microseconds = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  Trace& t = trace();
  std::lock_guard<std::mutex> lock(t.mutex);
  if (t.limit == 0) return;
  if (t.entries.size() >= t.limit) t.entries.pop_front();
  t.entries.push_back(std::move(entry));
}

bool recording() { return trace().on.load(std::memory_order_relaxed) && !pjrt::abandoned(); }

}  // namespace

void set_memory_trace(int64_t limit, int64_t frames) {
  Trace& t = trace();
  std::lock_guard<std::mutex> lock(t.mutex);
  t.limit = limit > 0 ? static_cast<size_t>(limit) : 0;
  t.entries.clear();
  t.frames.store(frames);
  t.on.store(limit > 0);
}

std::vector<TraceEntry> memory_trace() {
  Trace& t = trace();
  std::lock_guard<std::mutex> lock(t.mutex);
  return {t.entries.begin(), t.entries.end()};
}

void trace_allocation(int device, const void* address, int64_t bytes) {
  if (!recording()) return;
  TraceEntry entry{true, device, reinterpret_cast<intptr_t>(address), bytes, 0, {}};
  const StackSource source = trace().stack_source.load();
  if (const int64_t frames = trace().frames.load(); frames > 0 && source != nullptr) entry.frames = source(frames);
  add(std::move(entry));
}

void trace_free(int device, const void* address, int64_t bytes) {
  if (recording()) add({false, device, reinterpret_cast<intptr_t>(address), bytes, 0, {}});
}

void set_stack_source(StackSource source) { trace().stack_source.store(source); }

}  // namespace torch_tpu::aten
