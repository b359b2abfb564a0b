#include "runtime/late_error.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "runtime/engine.h"
#include "runtime/memory.h"

namespace torch_tpu::runtime {
namespace {

// Above this many flags a submission drops those that are known to be clear.
constexpr size_t kSweepAbove = 256;

struct Pending {
  ValueRef flag;
  std::string op, site;
  const char* sentence;
};

struct alignas(64) Device {
  std::mutex examining;  // held while flags are read: a second reader must not slip past flags that are being looked at
  std::mutex mutex;      // guards the lists; never held while waiting
  std::vector<Pending> pending;
  std::vector<Error> found;
  size_t sweep_at = kSweepAbove;
  std::atomic<int64_t> count{0};  // pending plus found
};

Device& device_of(int device) {
  static auto* const devices = new std::array<Device, kMaxDevices>;
  return (*devices)[static_cast<size_t>(std::clamp(device, 0, kMaxDevices - 1))];
}

Result<int32_t> read_flag(const Pending& pending) {
  if (Status status = force(pending.flag); !status.ok()) return status.error();
  const pjrt::Buffer& buffer = pending.flag->buffer;
  if (Status status = buffer.ready_event().wait(); !status.ok()) return status.error();
  int32_t word = 0;
  // The fast way where the host may read the buffer in place; anything else is a transfer.
  if (Result<const void*> pointer = buffer.host_pointer(); pointer.ok()) {
    std::memcpy(&word, pointer.value(), sizeof word);
    return word;
  }
  Result<pjrt::Event> copied = buffer.to_host(&word, sizeof word);
  if (!copied.ok()) return copied.error();
  if (Status status = copied.value().wait(); !status.ok()) return status.error();
  return word;
}

Error describe(const Pending& pending, const Result<int32_t>& word) {
  std::string text = pending.op + ": ";
  const bool index = pending.sentence == nullptr;
  text += !word.ok() ? word.error().message : index ? "index out of range" : pending.sentence;
  if (!pending.site.empty()) text += " (submitted at " + pending.site + ")";
  const ErrorCode code = !word.ok() ? word.error().code : index ? ErrorCode::kIndex : ErrorCode::kInvalidArgument;
  return {code, std::move(text)};
}

// Reads the flags that are ready (all of them with `wait`), moves set ones to `found`, keeps the rest.
void examine(Device& d, bool wait) {
  std::lock_guard examining(d.examining);
  std::vector<Pending> flags;
  {
    std::lock_guard lock(d.mutex);
    flags.swap(d.pending);
  }
  std::vector<Pending> unknown;
  std::vector<Error> found;
  for (Pending& pending : flags) {
    if (!wait && (pending.flag->debtor.load() != nullptr || !pending.flag->buffer.ready_event().ready())) {
      unknown.push_back(std::move(pending));
      continue;
    }
    const Result<int32_t> word = read_flag(pending);
    if (!word.ok() || word.value() != 0) found.push_back(describe(pending, word));
  }
  std::lock_guard lock(d.mutex);
  d.pending.insert(d.pending.begin(), std::make_move_iterator(unknown.begin()), std::make_move_iterator(unknown.end()));
  d.found.insert(d.found.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  d.count.store(static_cast<int64_t>(d.pending.size() + d.found.size()), std::memory_order_relaxed);
  d.sweep_at = std::max(kSweepAbove, 2 * d.pending.size());
}

}  // namespace

void watch_flag(ValueRef flag, std::string op, std::string site, const char* sentence) {
  if (!flag || pjrt::abandoned()) return;
  Device& d = device_of(flag->device);
  bool full = false;
  {
    std::lock_guard lock(d.mutex);
    d.pending.push_back({std::move(flag), std::move(op), std::move(site), sentence});
    d.count.fetch_add(1, std::memory_order_relaxed);
    full = d.pending.size() > d.sweep_at;
  }
  if (full) examine(d, /*wait=*/false);
}

Status check_flags(int device, bool wait) {
  Device& d = device_of(device);
  if (d.count.load(std::memory_order_relaxed) == 0 || pjrt::abandoned()) return {};
  examine(d, wait);
  std::lock_guard lock(d.mutex);
  if (d.found.empty()) return {};
  Error first = std::move(d.found.front());
  // One exception for all that is known by now: the later ones are usually the first one's consequences.
  if (d.found.size() > 1) first.message += ", and " + std::to_string(d.found.size() - 1) + " more since";
  d.count.fetch_sub(static_cast<int64_t>(d.found.size()), std::memory_order_relaxed);
  d.found.clear();
  return first;
}

}  // namespace torch_tpu::runtime
