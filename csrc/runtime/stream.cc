#include "runtime/stream.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/hooks.h"
#include "runtime/memory.h"

namespace torch_tpu::runtime {
namespace {

// Work that was submitted: its completion, and the operands that it consumes (Note [Consumed operands]).
struct Work : pjrt::Event {
  explicit Work(pjrt::Event completion) : pjrt::Event(std::move(completion)) {}
  std::vector<pjrt::Buffer> consumed;
};
using Token = std::shared_ptr<Work>;

// A submission looks at this many of the oldest tokens, so that a loop that never synchronises stays bounded; when one
// of those runs on while others finish, above this many all are looked at.
constexpr size_t kLookedAt = 2;
constexpr size_t kSweepAbove = 128;

struct Tokens {
  std::deque<Token> outstanding;
  size_t sweep_at = kSweepAbove;
  Status failure;  // the first error of a token that was retired without anybody waiting for it
};

struct alignas(64) Device {
  std::mutex mutex;
  Tokens main;                                 // stream 0
  std::unordered_map<int64_t, Tokens> others;  // guarded by mutex, like all of it
  std::atomic<int64_t> count{0};

  Tokens& of(int64_t stream) { return stream == 0 ? main : others[stream]; }
  Tokens* existing(int64_t stream) {
    if (stream == 0) return &main;
    auto it = others.find(stream);
    return it == others.end() ? nullptr : &it->second;
  }
};

Device& device_of(int device) {
  // Never destroyed: threads may submit and synchronise during static destruction.
  static auto* const devices = new std::array<Device, kMaxDevices>;
  return (*devices)[static_cast<size_t>(std::clamp(device, 0, kMaxDevices - 1))];
}

struct ThreadState {
  int device = 0;
  std::array<int64_t, kMaxDevices> streams{};
};
thread_local ThreadState thread_state;

std::atomic<int64_t> next_stream{1};

// Moves completed tokens out. Executions finish out of order, so all are looked at, not only the front. The tokens are
// returned so that the events are destroyed after the lock is released.
std::vector<Token> sweep(Device& device, Tokens& tokens) {
  std::vector<Token> done;
  auto keep = tokens.outstanding.begin();
  for (Token& token : tokens.outstanding) {
    if (!token->ready()) {
      if (&*keep != &token) *keep = std::move(token);
      ++keep;
      continue;
    }
    if (tokens.failure.ok()) tokens.failure = token->wait();
    done.push_back(std::move(token));
  }
  tokens.outstanding.erase(keep, tokens.outstanding.end());
  tokens.sweep_at = std::max(kSweepAbove, 2 * tokens.outstanding.size());
  device.count.fetch_sub(static_cast<int64_t>(done.size()), std::memory_order_relaxed);
  return done;
}

Status take_failure(Tokens& tokens) { return std::exchange(tokens.failure, Status()); }

// Waits for every token that `stream` (of `device`) has now, then reports the first failure once.
Status drain(Device& device, int64_t stream) {
  std::vector<Token> waiting;
  {
    std::lock_guard lock(device.mutex);
    Tokens* tokens = device.existing(stream);
    if (!tokens) return {};
    waiting.assign(tokens->outstanding.begin(), tokens->outstanding.end());
  }
  for (const Token& token : waiting) (void)token->wait();  // sweep() collects the failures
  std::vector<Token> done;
  std::lock_guard lock(device.mutex);
  Tokens* tokens = device.existing(stream);
  if (!tokens) return {};
  done = sweep(device, *tokens);
  return take_failure(*tokens);
}

}  // namespace

int current_device() { return thread_state.device; }
void set_current_device(int device) { thread_state.device = device; }

Stream current_stream(int device) {
  return {device, thread_state.streams[static_cast<size_t>(std::clamp(device, 0, kMaxDevices - 1))]};
}

Stream exchange_stream(Stream stream) {
  int64_t& current = thread_state.streams[static_cast<size_t>(std::clamp(stream.device, 0, kMaxDevices - 1))];
  return {stream.device, std::exchange(current, stream.id)};
}

// Priorities are accepted and mean nothing: the engine orders work by data.
Stream new_stream(int device, int) { return {device, next_stream.fetch_add(1, std::memory_order_relaxed)}; }

namespace {

// Takes completed tokens off the front, at most `oldest.size()` of them, for destruction after the lock is released.
void retire_oldest(Device& device, Tokens& tokens, std::array<Token, kLookedAt>& oldest) {
  for (Token& old : oldest) {
    if (tokens.outstanding.empty() || !tokens.outstanding.front()->ready()) break;
    old = std::move(tokens.outstanding.front());
    tokens.outstanding.pop_front();
    device.count.fetch_sub(1, std::memory_order_relaxed);
    if (tokens.failure.ok()) tokens.failure = old->wait();
  }
}

}  // namespace

bool needs_token(int device, bool runs_inline) {
  if (!runs_inline) return true;
  Device& d = device_of(device);
  if (d.count.load(std::memory_order_relaxed) == 0 || pjrt::abandoned()) return false;
  std::array<Token, kLookedAt> oldest;
  std::lock_guard lock(d.mutex);
  retire_oldest(d, d.main, oldest);
  return d.count.load(std::memory_order_relaxed) != 0;
}

void leave_token(int device, pjrt::Event completion) {
  if (!completion || pjrt::abandoned()) return;
  auto token = std::make_shared<Work>(std::move(completion));
  Device& d = device_of(device);
  // Destroyed after the lock is released.
  std::array<Token, kLookedAt> oldest;
  std::vector<Token> done;
  std::lock_guard lock(d.mutex);
  Tokens& tokens = d.of(current_stream(device).id);
  retire_oldest(d, tokens, oldest);
  tokens.outstanding.push_back(std::move(token));
  d.count.fetch_add(1, std::memory_order_relaxed);
  if (tokens.outstanding.size() > tokens.sweep_at) done = sweep(d, tokens);
}

// Note [Consumed operands]
// The embedded engine makes whoever destroys the handle of a donated buffer wait until the program that took its memory
// has finished. So such handles go with the program's token and are destroyed when it is retired. The newest token may
// be another thread's: then the wait is that of its program.
void bury(int device, pjrt::Buffer consumed) {
  Device& d = device_of(device);
  if (pjrt::abandoned() || d.count.load(std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(d.mutex);
  Tokens& tokens = d.of(current_stream(device).id);
  if (!tokens.outstanding.empty()) tokens.outstanding.back()->consumed.push_back(std::move(consumed));
}

bool query(Stream stream) {
  if (pjrt::abandoned()) return true;
  hooks::run_recorded(stream.device);
  Device& d = device_of(stream.device);
  std::vector<Token> done;
  std::lock_guard lock(d.mutex);
  Tokens* tokens = d.existing(stream.id);
  if (!tokens) return true;
  done = sweep(d, *tokens);
  return tokens->outstanding.empty();
}

Status synchronize(Stream stream) {
  if (pjrt::abandoned()) return {};
  hooks::run_recorded(stream.device);
  Status recorded = hooks::take_failure(stream.device);
  Status submitted = drain(device_of(stream.device), stream.id);
  return recorded.ok() ? std::move(submitted) : std::move(recorded);
}

Status synchronize_device(int device) {
  if (pjrt::abandoned()) return {};
  hooks::run_recorded(device);
  Status recorded = hooks::take_failure(device);
  Status submitted = wait_for_submissions(device);
  return recorded.ok() ? std::move(submitted) : std::move(recorded);
}

Status wait_for_submissions(int device) {
  if (pjrt::abandoned()) return {};
  Device& d = device_of(device);
  std::vector<int64_t> streams{0};
  {
    std::lock_guard lock(d.mutex);
    for (const auto& [stream, tokens] : d.others) streams.push_back(stream);
  }
  Status first;
  for (int64_t stream : streams)
    if (Status status = drain(d, stream); first.ok()) first = std::move(status);
  return first;
}

int64_t outstanding(int device) { return device_of(device).count.load(std::memory_order_relaxed); }

namespace {
int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
}  // namespace

struct EventRecord::State {
  std::vector<Token> tokens;
  bool timing = false;
  // Callbacks still to come plus one for record() itself; whoever brings it to zero writes the time.
  std::atomic<int64_t> pending{1};
  std::atomic<int64_t> completed_ns{0};

  void arrive() {
    if (pending.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    completed_ns.store(now_ns(), std::memory_order_release);
    completed_ns.notify_all();
  }
};

void EventRecord::record(Stream stream, bool timing) {
  auto state = std::make_shared<State>();
  state->timing = timing;
  if (!pjrt::abandoned()) {
    hooks::run_recorded(stream.device);
    Device& d = device_of(stream.device);
    std::vector<Token> done;
    std::lock_guard lock(d.mutex);
    if (Tokens* tokens = d.existing(stream.id)) {
      done = sweep(d, *tokens);
      state->tokens.assign(tokens->outstanding.begin(), tokens->outstanding.end());
    }
  }
  if (timing) {
    state->pending.fetch_add(static_cast<int64_t>(state->tokens.size()), std::memory_order_relaxed);
    for (const Token& token : state->tokens) token->on_ready([state](Status) { state->arrive(); });
    state->arrive();
  }
  state_ = std::move(state);
}

bool EventRecord::query() const {
  if (!state_ || pjrt::abandoned()) return true;
  return std::all_of(state_->tokens.begin(), state_->tokens.end(), [](const Token& token) { return token->ready(); });
}

Status EventRecord::synchronize() const {
  if (!state_ || pjrt::abandoned()) return {};
  Status first;
  for (const Token& token : state_->tokens)
    if (Status status = token->wait(); first.ok()) first = std::move(status);
  return first;
}

void EventRecord::block(Stream stream) const {
  if (!state_ || pjrt::abandoned()) return;
  Device& d = device_of(stream.device);
  std::lock_guard lock(d.mutex);
  Tokens& tokens = d.of(stream.id);
  for (const Token& token : state_->tokens) {
    if (token->ready() ||
        std::find(tokens.outstanding.begin(), tokens.outstanding.end(), token) != tokens.outstanding.end())
      continue;
    tokens.outstanding.push_back(token);
    d.count.fetch_add(1, std::memory_order_relaxed);
  }
}

Result<double> EventRecord::elapsed_to(const EventRecord& end) const {
  const auto refuse = [](const char* why) {
    return Error{ErrorCode::kInvalidArgument, std::string("Event.elapsed_time: ") + why};
  };
  if (!state_ || !end.state_) return refuse("both events must be recorded first");
  if (!state_->timing || !end.state_->timing) return refuse("both events must be created with enable_timing=True");
  if (!query() || !end.query()) return refuse("both events must be completed first; call synchronize()");
  if (pjrt::abandoned()) return refuse("the engine is gone");
  // The engine's threads may still be on their way into the callbacks of events that are already ready.
  state_->completed_ns.wait(0, std::memory_order_acquire);
  end.state_->completed_ns.wait(0, std::memory_order_acquire);
  return static_cast<double>(end.state_->completed_ns.load() - state_->completed_ns.load()) / 1e6;
}

}  // namespace torch_tpu::runtime
