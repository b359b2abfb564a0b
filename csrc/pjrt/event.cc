#include <sched.h>

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
// and polling would cost a time slice each time (measured beside two busy processes: a step of 0.25 ms took 2.5): then
// the next waits block at once.
constexpr auto kPolling = std::chrono::microseconds(200);
constexpr auto kTakenAway = std::chrono::microseconds(400);
constexpr int kWaitsAtOnce = 1000;

std::atomic<int> at_once{0};  // waits that still block at once

void poll(const Event& event) {
  using Clock = std::chrono::steady_clock;
  if (at_once.load(std::memory_order_relaxed) > 0) {
    at_once.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  const Clock::time_point begin = Clock::now();
  for (Clock::time_point last = begin; !event.ready() && last - begin < kPolling;) {
    sched_yield();
    const Clock::time_point now = Clock::now();
    if (now - last > kTakenAway) {
      at_once.store(kWaitsAtOnce, std::memory_order_relaxed);
      return;
    }
    last = now;
  }
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
  poll(*this);
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
