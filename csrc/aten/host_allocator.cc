#include "aten/host_allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <pthread.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace torch_tpu::aten {
namespace {

constexpr size_t kAlignment = 4096;
// Blocks above this size go straight back to the system; what is kept in all stays below four times as much.
constexpr size_t kLargestCached = size_t{64} << 20;
constexpr size_t kMostCached = 4 * kLargestCached;

// Power-of-two blocks, kept for reuse. One lock: pinned blocks are allocated per batch, not per op.
class HostAllocatorImpl final : public at::HostAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override;
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
  // Host memory is copied before a transfer returns: a block is never in use by the device.
  bool record_event(void* pointer, void*, c10::Stream) override { return contains(pointer); }
  void empty_cache() override;
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override;
  void reset_peak_stats() override;

  bool contains(const void* pointer);
  void release(void* block);
  std::mutex& mutex() { return mutex_; }

 private:
  void free_to_system(char* block, size_t size);

  std::mutex mutex_;
  std::map<const char*, size_t> live_;           // address -> block size
  std::map<size_t, std::vector<char*>> cached_;  // block size -> free blocks
  size_t cached_bytes_ = 0;
  at::HostStats stats_;
};

HostAllocatorImpl& host_allocator() {
  static auto* instance = new HostAllocatorImpl;  // leaked: tensors may be freed after static destruction
  return *instance;
}

void release_block(void* block) { host_allocator().release(block); }

at::DataPtr HostAllocatorImpl::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &release_block, at::Device(at::kCPU)};
  const size_t size = bytes <= kLargestCached ? std::max(std::bit_ceil(bytes), kAlignment)
                                              : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::lock_guard<std::mutex> lock(mutex_);
  char* block = nullptr;
  if (auto found = cached_.find(size); found != cached_.end() && !found->second.empty()) {
    block = found->second.back();
    found->second.pop_back();
    cached_bytes_ -= size;
  } else {
    block = static_cast<char*>(std::aligned_alloc(kAlignment, size));
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "pin_memory: the system has no host memory left, asked for ",
                     size, " bytes");
    stats_.allocations.increase(1);
    stats_.allocated_bytes.increase(size);
    stats_.num_host_alloc += 1;
    stats_.bucket_allocation[std::bit_width(size) - 1] += 1;
  }
  live_.emplace(block, size);
  stats_.active_requests.increase(1);
  stats_.active_bytes.increase(size);
  return {block, block, &release_block, at::Device(at::kCPU)};
}

void HostAllocatorImpl::release(void* pointer) {
  if (pointer == nullptr) return;
  char* block = static_cast<char*>(pointer);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = live_.find(block);
  if (found == live_.end()) return;
  const size_t size = found->second;
  live_.erase(found);
  stats_.active_requests.decrease(1);
  stats_.active_bytes.decrease(size);
  if (size > kLargestCached || cached_bytes_ + size > kMostCached) {
    free_to_system(block, size);
    return;
  }
  cached_[size].push_back(block);
  cached_bytes_ += size;
}

void HostAllocatorImpl::free_to_system(char* block, size_t size) {
  std::free(block);
  stats_.allocations.decrease(1);
  stats_.allocated_bytes.decrease(size);
  stats_.num_host_free += 1;
}

bool HostAllocatorImpl::contains(const void* pointer) {
  const char* address = static_cast<const char*>(pointer);
  std::lock_guard<std::mutex> lock(mutex_);
  auto after = live_.upper_bound(address);
  if (after == live_.begin()) return false;
  --after;
  return address < after->first + after->second;
}

void HostAllocatorImpl::empty_cache() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [size, blocks] : cached_)
    for (char* block : blocks) free_to_system(block, size);
  cached_.clear();
  cached_bytes_ = 0;
}

at::HostStats HostAllocatorImpl::get_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

void HostAllocatorImpl::reset_accumulated_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (at::Stat* stat : {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations, &stats_.allocated_bytes})
    stat->reset_accumulated();
  stats_.num_host_alloc = stats_.num_host_free = 0;
}

void HostAllocatorImpl::reset_peak_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (at::Stat* stat : {&stats_.active_requests, &stats_.active_bytes, &stats_.allocations, &stats_.allocated_bytes})
    stat->reset_peak();
}

// The lock is taken across a fork, so that a child (a DataLoader worker) never inherits it held by a vanished thread.
const int fork_handlers =
    pthread_atfork([] { host_allocator().mutex().lock(); }, [] { host_allocator().mutex().unlock(); },
                   [] { host_allocator().mutex().unlock(); });

REGISTER_HOST_ALLOCATOR(at::kPrivateUse1, &host_allocator())

}  // namespace

bool is_pinned(const void* pointer) {
  static_cast<void>(fork_handlers);
  return pointer != nullptr && host_allocator().contains(pointer);
}

}  // namespace torch_tpu::aten
