#include "late_event.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace torch_tpu::test_plugin {
namespace {

const PJRT_Api* engine = nullptr;

struct Callback {
  PJRT_Event_OnReadyCallback function;
  void* user_arg;
};

struct State {
  std::mutex mutex;
  std::condition_variable became_ready;
  bool ready = false;  // guarded by mutex, as are the next two
  std::vector<Callback> callbacks;
  Failure failure;
  Clock::time_point due;
  std::function<void()> before_ready;

  // On the scheduler's thread, once.
  void complete() {
    std::vector<Callback> waiting;
    {
      std::lock_guard lock(mutex);
      if (before_ready && !failure) before_ready();
      before_ready = nullptr;
      ready = true;
      waiting.swap(callbacks);
    }
    became_ready.notify_all();
    for (const Callback& callback : waiting) callback.function(make_error(failure), callback.user_arg);
  }
};
using StatePointer = std::shared_ptr<State>;

// One thread completes every event, by due time: a callback never runs on the thread that asked for it.
class Scheduler {
 public:
  void add(StatePointer state) {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(state));
    std::push_heap(waiting_.begin(), waiting_.end(), later);
    if (!started_) std::thread([this] { run(); }).detach();
    started_ = true;
    changed_.notify_all();
  }
  // Before the state goes to the engine, whose thread will add it: ThreadSanitizer, which sees no lock inside of the
  // engine, sees this one on the way from the caller to that thread.
  void expect() { std::lock_guard lock(mutex_); }
  void hold(bool hold) {
    std::lock_guard lock(mutex_);
    held_ = hold;
    changed_.notify_all();
  }

 private:
  static bool later(const StatePointer& a, const StatePointer& b) { return a->due > b->due; }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !held_ && !waiting_.empty(); });
      if (const Clock::time_point due = waiting_.front()->due; due > Clock::now()) {
        changed_.wait_until(lock, due);
        continue;
      }
      std::pop_heap(waiting_.begin(), waiting_.end(), later);
      StatePointer state = std::move(waiting_.back());
      waiting_.pop_back();
      lock.unlock();
      state->complete();
      state.reset();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<StatePointer> waiting_;  // a heap, the earliest first
  bool held_ = false, started_ = false;
};

// Never destroyed: its thread outlives main().
Scheduler& scheduler() {
  static Scheduler* const instance = new Scheduler;
  return *instance;
}

const StatePointer& state_of(PJRT_Event* event) { return *reinterpret_cast<StatePointer*>(event); }

void inner_ready(PJRT_Error* error, void* user_arg) {
  std::unique_ptr<StatePointer> state(static_cast<StatePointer*>(user_arg));
  Failure failure = take_target_error(engine, error);
  if (!(*state)->failure) (*state)->failure = std::move(failure);
  scheduler().add(std::move(*state));
}

PJRT_Error* destroy(PJRT_Event_Destroy_Args* args) {
  delete reinterpret_cast<StatePointer*>(args->event);
  return nullptr;
}

PJRT_Error* is_ready(PJRT_Event_IsReady_Args* args) {
  State& state = *state_of(args->event);
  std::lock_guard lock(state.mutex);
  args->is_ready = state.ready;
  return nullptr;
}

PJRT_Error* error(PJRT_Event_Error_Args* args) {
  State& state = *state_of(args->event);
  std::lock_guard lock(state.mutex);
  if (!state.ready) return make_error({PJRT_Error_Code_FAILED_PRECONDITION, "the event is not ready"});
  return make_error(state.failure);
}

PJRT_Error* await(PJRT_Event_Await_Args* args) {
  StatePointer state = state_of(args->event);
  std::unique_lock lock(state->mutex);
  state->became_ready.wait(lock, [&] { return state->ready; });
  return make_error(state->failure);
}

PJRT_Error* on_ready(PJRT_Event_OnReady_Args* args) {
  State& state = *state_of(args->event);
  {
    std::lock_guard lock(state.mutex);
    if (!state.ready) {
      state.callbacks.push_back({args->callback, args->user_arg});
      return nullptr;
    }
  }
  args->callback(make_error(state.failure), args->user_arg);
  return nullptr;
}

}  // namespace

PJRT_Event* make_late_event(PJRT_Event* inner, Clock::time_point due, Failure failure,
                            std::function<void()> before_ready) {
  auto state = std::make_shared<State>();
  state->due = due;
  state->failure = std::move(failure);
  state->before_ready = std::move(before_ready);
  auto* event = new StatePointer(state);
  if (!inner) {
    scheduler().add(std::move(state));
    return reinterpret_cast<PJRT_Event*>(event);
  }
  PJRT_Event_OnReady_Args wait{};
  wait.struct_size = PJRT_Event_OnReady_Args_STRUCT_SIZE;
  wait.event = inner;
  wait.callback = inner_ready;
  wait.user_arg = new StatePointer(std::move(state));
  scheduler().expect();
  if (PJRT_Error* refused = engine->PJRT_Event_OnReady(&wait)) inner_ready(refused, wait.user_arg);
  PJRT_Event_Destroy_Args gone{};
  gone.struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE;
  gone.event = inner;
  if (PJRT_Error* refused = engine->PJRT_Event_Destroy(&gone)) take_target_error(engine, refused);
  return reinterpret_cast<PJRT_Event*>(event);
}

void hold_events(bool hold) { scheduler().hold(hold); }

void install_event_functions(const PJRT_Api* target, PJRT_Api* api) {
  engine = target;
  api->PJRT_Event_Destroy = destroy;
  api->PJRT_Event_IsReady = is_ready;
  api->PJRT_Event_Error = error;
  api->PJRT_Event_Await = await;
  api->PJRT_Event_OnReady = on_ready;
}

}  // namespace torch_tpu::test_plugin
