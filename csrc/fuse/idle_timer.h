// Looks, every few milliseconds while something is recorded, for regions that nobody adds to.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace torch_tpu::fuse {

// One thread, started by the first `wake` and asleep while nothing is recorded. Lives for ever.
class IdleTimer {
 public:
  // `look` says whether anything is recorded; with `run`, it runs what has not grown since it looked last. It must not
  // wait for a lock under which `wake` is called.
  explicit IdleTimer(std::function<bool(bool run)> look) : look_(std::move(look)) {}
  // Something has been recorded. Costs one load while the timer is awake.
  void wake() {
    if (asleep_.load(std::memory_order_acquire)) rouse();
  }
  // For ever; waits for the thread.
  void stop();

 private:
  void rouse();
  void watch();

  const std::function<bool(bool)> look_;
  std::atomic<bool> asleep_{true};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  bool stopped_ = false;
};

}  // namespace torch_tpu::fuse
