#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "pjrt/arguments.h"
#include "pjrt/client.h"

namespace torch_tpu::pjrt {
namespace {

std::atomic<bool> gone{false};
std::atomic<bool> stopped{false};

// Note [Polling before blocking]
// A thread that blocks comes back some 30 us after its event: as long as many a program takes. So a wait polls first.
// It gives its core away at every look, since the engine's own threads may need it; where that takes long, others do,
// and polling would cost a time slice each time (measured beside two busy processes: a step of 0.25 ms took 2.5). Then
// the next waits block at once: the more, the more often that has happened, the fewer, the more often polling has paid.
class Polling {
 public:
  void until_ready(const Event& event) {
    if (left_.load(std::memory_order_relaxed) > 0) {
      left_.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
    if (event.ready()) return;
    const Clock::time_point begin = Clock::now();
    for (Clock::time_point last = begin; last - begin < kLongest;) {
      sched_yield();
      const Clock::time_point now = Clock::now();
      const int pause = pause_.load(std::memory_order_relaxed);
      if (now - last > kTakenAway) {
        left_.store(pause, std::memory_order_relaxed);
        pause_.store(std::min(kMost, 2 * pause), std::memory_order_relaxed);
        return;
      }
      if (event.ready()) {
        pause_.store(std::max(kFewest, pause / 2), std::memory_order_relaxed);
        return;
      }
      last = now;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kLongest = std::chrono::microseconds(200), kTakenAway = std::chrono::microseconds(400);
  static constexpr int kFewest = 2, kMost = 512;  // waits
  // Several threads count without care: it is a matter of speed only.
  std::atomic<int> pause_{kFewest};
  std::atomic<int> left_{0};
};

Polling& polling() {
  static constinit Polling instance;
  return instance;
}

struct Waiter {
  const Plugin* plugin;
  std::function<void(Status)> fn;
};

void finish(Waiter* waiter, Status status) {
  try {
    waiter->fn(std::move(status));
  } catch (...) {  // NOLINT(bugprone-empty-catch): there is no frame of ours above an engine thread that could take it
  }
  delete waiter;
}

void on_ready_trampoline(PJRT_Error* error, void* user_arg) {
  auto* waiter = static_cast<Waiter*>(user_arg);
  finish(waiter, waiter->plugin->status(error));
}

}  // namespace

void stop_submissions() { stopped.store(true); }
bool submissions_stopped() { return stopped.load(std::memory_order_relaxed); }
void abandon_all() { gone.store(true, std::memory_order_relaxed); }
bool abandoned() { return gone.load(std::memory_order_relaxed); }

Event Event::failed(Error error) {
  Event event;
  event.failure_ = std::make_unique<Error>(std::move(error));
  return event;
}

Event& Event::operator=(Event&& o) noexcept {
  if (this != &o) {
    this->~Event();
    new (this) Event(std::move(o));
  }
  return *this;
}

Event::~Event() {
  if (event_ == nullptr || abandoned()) return;
  Arguments<PJRT_Event_Destroy_Args> args(*plugin_);
  args->event = event_;
  (void)call(*plugin_, plugin_->api()->PJRT_Event_Destroy, args);
}

bool Event::ready() const {
  if (event_ == nullptr || abandoned()) return true;
  Arguments<PJRT_Event_IsReady_Args> args(*plugin_);
  args->event = event_;
  return !call(*plugin_, plugin_->api()->PJRT_Event_IsReady, args).ok() || args->is_ready;
}

Status Event::wait() const {
  if (failure_) return *failure_;
  if (event_ == nullptr) return {};
  if (abandoned()) return abandoned_error();
  polling().until_ready(*this);
  Arguments<PJRT_Event_Await_Args> args(*plugin_);
  args->event = event_;
  return call(*plugin_, plugin_->api()->PJRT_Event_Await, args);
}

void Event::on_ready(std::function<void(Status)> fn) const {
  auto* waiter = new Waiter{plugin_, std::move(fn)};
  if (event_ == nullptr || abandoned()) return finish(waiter, wait());
  Arguments<PJRT_Event_OnReady_Args> args(*plugin_);
  args->event = event_;
  args->callback = on_ready_trampoline;
  args->user_arg = waiter;
  if (Status status = call(*plugin_, plugin_->api()->PJRT_Event_OnReady, args); !status.ok())
    finish(waiter, std::move(status));
}

}  // namespace torch_tpu::pjrt
