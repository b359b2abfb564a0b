#include "store/background.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "pjrt/client.h"
#include "runtime/engine.h"

namespace torch_tpu::store::background {
namespace {

using Clock = std::chrono::steady_clock;

class Worker {
 public:
  static Worker& instance() {
    static Worker* const worker = new Worker;  // outlives static destruction: its thread may still look at it
    return *worker;
  }

  void enqueue(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(work));
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run(); });
      runtime::Engine::before_shutdown([this] { stop(); });
    }
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return stopping_ || (queue_.empty() && !busy_); });
    --waiting_;
  }

  void foreground(int change) {
    std::lock_guard lock(mutex_);
    foreground_ += change;
    if (foreground_ == 0) changed_.notify_all();
  }

 private:
  bool may_start() const {
    return !queue_.empty() && foreground_ == 0 && (waiting_ > 0 || Clock::now() >= not_before_);
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      // Only what is due is waited for with a deadline; the rest is announced.
      while (!stopping_ && !may_start()) {
        if (queue_.empty() || foreground_ > 0)
          changed_.wait(lock);
        else
          changed_.wait_until(lock, not_before_);
      }
      if (stopping_) return;
      std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      const Clock::time_point begin = Clock::now();
      work();
      work = nullptr;
      lock.lock();
      not_before_ = Clock::now() + 3 * (Clock::now() - begin);
      busy_ = false;
      changed_.notify_all();
    }
  }

  // A compile in progress is waited for: the process must not end under it.
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    changed_.notify_all();
    thread_.join();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::thread thread_;
  Clock::time_point not_before_;
  int foreground_ = 0, waiting_ = 0;
  bool busy_ = false, stopping_ = false;
};

}  // namespace

void enqueue(std::function<void()> work) {
  if (!pjrt::abandoned()) Worker::instance().enqueue(std::move(work));
}

void wait() {
  if (!pjrt::abandoned()) Worker::instance().wait();
}

// A child forked in between has no worker, and the worker's lock may be held for ever.
ForegroundCompile::ForegroundCompile() {
  if (!pjrt::abandoned()) Worker::instance().foreground(1);
}
ForegroundCompile::~ForegroundCompile() {
  if (!pjrt::abandoned()) Worker::instance().foreground(-1);
}

}  // namespace torch_tpu::store::background
