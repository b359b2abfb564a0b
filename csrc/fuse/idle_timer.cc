#include "fuse/idle_timer.h"

#include <chrono>

namespace torch_tpu::fuse {
namespace {
// A thread that is only waiting for a core is not idle: longer than the scheduler's turns.
constexpr std::chrono::milliseconds kPause{10};
}  // namespace

void IdleTimer::rouse() {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  asleep_.store(false, std::memory_order_release);
  if (!thread_.joinable()) thread_ = std::thread([this] { watch(); });
  changed_.notify_all();
}

void IdleTimer::watch() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    changed_.wait_for(lock, kPause, [&] { return stopped_; });
    if (stopped_) return;
    lock.unlock();
    const bool something = look_(/*run=*/true);
    lock.lock();
    if (something) continue;
    // What was recorded before this store is seen by the look after it; what comes later rouses.
    asleep_.store(true, std::memory_order_seq_cst);
    if (look_(/*run=*/false)) {
      asleep_.store(false, std::memory_order_release);
      continue;
    }
    changed_.wait(lock, [&] { return stopped_ || !asleep_.load(std::memory_order_acquire); });
  }
}

void IdleTimer::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace torch_tpu::fuse
