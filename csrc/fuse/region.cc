#include "fuse/region.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "fuse/idle_timer.h"
#include "runtime/engine.h"
#include "runtime/hooks.h"
#include "runtime/memory.h"
#include "runtime/statistics.h"
#include "runtime/stream.h"

namespace torch_tpu::fuse {
namespace {

// A region that grows beyond this runs: the values it holds are memory.
constexpr size_t kMostSteps = 1024;
constexpr size_t kFewSteps = 4;
constexpr int64_t kMostBytes = int64_t{256} << 20;
// Note [Enough work]
// A region that is recorded to its end before it starts leaves the device idle meanwhile. What fusion saves is memory
// traffic and launches, not multiplications: once a region holds matrix products or convolutions (many operations for
// each element) of about ten milliseconds, it runs, and the device works while the next one is recorded. Measured: cuts
// at a hundredth of that made 35 launches of a small GPT's step, which then was no faster than op by op.
constexpr double kOperationsPerElement = 16;
constexpr double kEnoughOnCpu = 5e8, kEnoughOnTpu = 2e12;

// Note [Regions that change]
// A thread whose last kMostNew regions were all new gains nothing by recording them. It rests: its ops run as in strict
// mode and are only observed, until some stretch of them repeats itself.
constexpr int kMostNew = 16;

// Positions by value: an open-addressed table, because a region asks it for every operand.
class Positions {
 public:
  explicit Positions(size_t expected) {
    size_t capacity = 16;
    while (capacity < 2 * expected) capacity *= 2;
    cells_.resize(capacity);
  }
  // The place of the value's number; -1 there if it is new.
  int64_t& operator[](const runtime::BufferValue* value) {
    size_t i = (reinterpret_cast<uintptr_t>(value) >> 4) * 0x9E3779B97F4A7C15u >> 20 & (cells_.size() - 1);
    while (cells_[i].value != nullptr && cells_[i].value != value) i = (i + 1) & (cells_.size() - 1);
    cells_[i].value = value;
    return cells_[i].number;
  }

 private:
  struct Cell {
    const runtime::BufferValue* value = nullptr;
    int64_t number = -1;
  };
  std::vector<Cell> cells_;
};

// Regions are never freed, because values that other threads hold point to them: a thread that ends leaves its own to
// the next one.
struct Registry {
  std::mutex mutex;
  std::vector<Region*> all, spare;

  Region* take(bool of_backward) {
    std::lock_guard lock(mutex);
    if (spare.empty()) {
      all.push_back(new Region);
      spare.push_back(all.back());
    }
    Region* region = spare.back();
    spare.pop_back();
    region->set_of_backward(of_backward);
    return region;
  }
  void give_back(Region* region) {
    std::lock_guard lock(mutex);
    spare.push_back(region);
  }
  std::vector<Region*> snapshot() {
    std::lock_guard lock(mutex);
    return all;
  }
};
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

struct ThreadState {
  Recorder* capture = nullptr;
  Region* region = nullptr;
  int depth = 0;
  // Another thread's region that this one records into, for as long as it has steps and the backward pass lasts.
  Region* joined = nullptr;
  int64_t pass = -1;

  Region* own_region() {
    if (region == nullptr) region = registry().take(runtime::hooks::backward_pass() >= 0);
    return region;
  }
  Region* current_region() {
    if (joined != nullptr) {
      if (!joined->empty() && runtime::hooks::backward_pass() == pass) return joined;
      joined = nullptr;
    }
    return own_region();
  }
  ~ThreadState() {
    if (region == nullptr || pjrt::abandoned()) return;
    region->pay(Cut::kSynchronize);
    registry().give_back(region);
  }
};
thread_local ThreadState thread_state;
std::atomic<bool> always{false};

IdleTimer& idle_timer() {
  static auto* const instance = new IdleTimer([](bool run) {
    bool any = false;
    for (Region* region : registry().snapshot()) any |= region->look(run);
    return any;
  });
  return *instance;
}

double enough_work() {
  static const double work = [] {
    auto engine = runtime::Engine::get();
    return engine.ok() && engine.value()->client().platform() != pjrt::PlatformKind::kCpu ? kEnoughOnTpu : kEnoughOnCpu;
  }();
  return work;
}

// Note [The line of a late error]
// PyTorch gives up the GIL around an op, and taking it back for the line of every recorded op would cost a tenth of the
// op, or a wait for another thread. So the error names the line that called the op first, in these shapes, and says how
// to find this call.
std::shared_ptr<runtime::Failure> failure_of(Error error, const Step& step) {
  if (!step.site.empty())
    error.message += " (recorded; first called at " + step.site + "; TPU_LAUNCH_BLOCKING=1 raises at the line itself)";
  return std::make_shared<runtime::Failure>(std::move(error));
}

void run_recorded(int device) {
  for (Region* region : registry().snapshot()) region->pay_device(device);
}

Status take_failure(int device) {
  Status first;
  for (Region* region : registry().snapshot())
    if (Status status = region->take_failure(device); first.ok()) first = std::move(status);
  return first;
}

}  // namespace

// How the recorded values hang together.
struct Region::Wiring {
  std::vector<hlo::Source> operands;  // of all steps, one after the other
  std::vector<size_t> external;       // per parameter: its position in values_
  std::vector<int32_t> held;          // per parameter: how many references the region holds
  Returned returned;                  // results that somebody outside holds
  RegionKey key;
};

Recorder* Recorder::current() {
  if (thread_state.capture != nullptr) return thread_state.capture;
  return Region::recording();
}

Recorder* Recorder::capture() { return thread_state.capture; }

Recorder* Recorder::exchange_capture(Recorder* capture) { return std::exchange(thread_state.capture, capture); }

Region* Region::recording() {
  if (always.load(std::memory_order_relaxed)) {
    Region* region = thread_state.current_region();
    if (!region->resting_.load(std::memory_order_relaxed)) return region;
  }
  return thread_state.depth > 0 ? thread_state.region : nullptr;
}

// Note [One region for a training step]
// Autograd runs the backward pass on a thread of its own while the caller waits, so forward, backward and optimizer are
// one stream of ops although two threads record them. A thread whose region is empty goes on in the region that owes
// its operand if it works for a backward pass, or if the other region is that of such a thread. Any interleaving would
// be right, because a region's lock makes one order of what threads record; but threads that run side by side would
// make another region each time, so no other threads share one.
bool Region::join() {
  if (!always.load(std::memory_order_relaxed) || thread_state.capture != nullptr) return false;
  const Region& current = *thread_state.current_region();
  if (!current.empty() || current.resting_.load() || resting_.load()) return false;
  const int64_t pass = runtime::hooks::backward_pass();
  if (pass < 0 && !of_backward_.load(std::memory_order_relaxed)) return false;
  thread_state.joined = this;
  thread_state.pass = pass;
  return true;
}

void Region::observe(const Step& step) {
  if (!always.load(std::memory_order_relaxed)) return;
  Region& region = *thread_state.own_region();
  if (!region.resting_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(region.mutex_);
  if (region.cutter_.repeats_before(step.id)) {
    region.resting_.store(false);
    region.new_in_a_row_ = 0;
    region.cutter_.restart();
    return;
  }
  region.cutter_.append(step.id);
}

void run_before_switch_of_stream() {
  if (thread_state.region != nullptr && !pjrt::abandoned()) thread_state.current_region()->pay(Cut::kSynchronize);
}

void set_recording(bool on) {
  static const bool hooked = [] {
    static constexpr runtime::hooks::Recorder recorder{&run_recorded, &take_failure};
    runtime::hooks::set_recorder(&recorder);
    runtime::Engine::before_shutdown([] {
      always.store(false);
      idle_timer().stop();
      for (Region* region : registry().snapshot()) region->pay(Cut::kSynchronize);
    });
    return true;
  }();
  (void)hooked;
  always.store(on);
  if (!on && thread_state.region != nullptr && thread_state.depth == 0) thread_state.region->pay(Cut::kSynchronize);
}

bool Region::makes_room(int device, int64_t bytes) {
  if (runtime::fits(device, bytes_.load(std::memory_order_relaxed) + bytes)) return true;
  pay(Cut::kEarly);
  return false;
}

void Region::record(const StepRef& step, int device, std::span<runtime::ValueRef> inputs,
                    std::span<runtime::ValueRef> outputs) {
  std::lock_guard lock(mutex_);
  if (steps_since_cut_ >= kMostSteps || bytes_since_cut_ >= kMostBytes) run_all(Cut::kFull);
  if (work_since_cut_ >= enough_work()) run_all(Cut::kWork);
  if (!steps_.empty() && device != device_) run_all(Cut::kDevice);
  if (!resting_.load(std::memory_order_relaxed)) {
    const int64_t pass = runtime::hooks::backward_pass();
    if (cutter_.ends_before(step->id, pass)) {
      if (steps_since_cut_ >= kFewSteps)
        run_all(Cut::kPeriod);
      else
        cutter_.restart();  // the little that came after another cut goes with the next round
    }
    cutter_.append(step->id, pass);
  }
  const bool first = steps_.empty();
  if (first) {
    empty_.store(false, std::memory_order_release);
    device_ = device;
    stream_ = runtime::current_stream(device).id;
  }
  Recorded recorded{step, values_.size(), values_.size() + inputs.size()};
  values_.insert(values_.end(), std::move_iterator(inputs.begin()), std::move_iterator(inputs.end()));
  for (size_t k = 0; k < outputs.size(); ++k) {
    const hlo::Type& type = step->function->results[k];
    const int64_t bytes = element_count(type.shape) * byte_size(type.dtype);
    bytes_ += bytes;
    bytes_since_cut_ += bytes;
    runtime::ValueRef value(new runtime::BufferValue(*this, type, device, bytes));
    value->producer = step->name;
    values_.push_back(value);
    outputs[k] = std::move(value);
  }
  steps_.push_back(std::move(recorded));
  ++steps_since_cut_;
  if (const double work = step->program->flops; work > kOperationsPerElement * static_cast<double>(step->elements))
    work_since_cut_ += work;
  ++grown_;
  if (first && always.load(std::memory_order_relaxed)) idle_timer().wake();
}

void Region::pay() { pay(thread_state.region == this || thread_state.joined == this ? Cut::kRead : Cut::kOtherThread); }

void Region::pay(Cut cut) {
  if (pjrt::abandoned()) return;  // the lock may be a parent thread's
  std::lock_guard lock(mutex_);
  run_all(cut);
}

void Region::pay_device(int device) {
  if (pjrt::abandoned()) return;
  std::lock_guard lock(mutex_);
  if (device < 0 || device == device_) run_all(Cut::kSynchronize);
}

Status Region::take_failure(int device) {
  if (pjrt::abandoned()) return {};
  std::lock_guard lock(mutex_);
  for (auto it = failures_.begin(); it != failures_.end();) {
    const auto [where, failure] = *it;
    if (device >= 0 && where != device) {
      ++it;
      continue;
    }
    it = failures_.erase(it);
    if (!failure->told.exchange(true)) return failure->error;
  }
  return {};
}

bool Region::look(bool run) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return true;
  if (steps_.empty()) return false;
  if (!run) return true;
  if (std::exchange(seen_, grown_) != grown_) return true;
  run_all(Cut::kEarly);
  return false;
}

// Ends with every recorded value settled or failed and nothing recorded.
void Region::run_all(Cut cut) {
  if (!steps_.empty()) {
    const runtime::Stream before = runtime::exchange_stream({device_, stream_});
    if (!run_as_one(torn_ ? Cut::kEarly : cut)) run_steps();
    runtime::exchange_stream(before);
    steps_.clear();
    values_.clear();
    bytes_ = 0;
    empty_.store(true, std::memory_order_release);
    if (cut == Cut::kEarly) torn_ = true;
  }
  if (cut != Cut::kEarly) end_stream(cut);
}

// Note [What tears a region]
// A region that ran early, in part, would make regions of its parts that never return. So a part only uses a program
// that exists, the rest is recorded as if nothing had happened, and both the cutter and the limits count on to where
// the whole region ends. A full region, or one of enough work, is a cut like any other, but no beginning of the stream.
void Region::end_stream(Cut cut) {
  torn_ = false;
  steps_since_cut_ = 0;
  bytes_since_cut_ = 0;
  work_since_cut_ = 0;
  if (cut != Cut::kFull && cut != Cut::kWork && !resting_.load(std::memory_order_relaxed)) cutter_.restart();
}

bool Region::run_as_one(Cut cut) {
  using Clock = std::chrono::steady_clock;
  if (steps_.size() < 2) return false;
  const Wiring wiring = wire();
  const Meeting meeting = meet(
      wiring.key,
      [&] {
        std::vector<StepRef> steps;
        for (const Recorded& recorded : steps_) steps.push_back(recorded.step);
        return steps;
      },
      wiring.returned, device_, cut, [&](const Returned& returned) { return blueprint(wiring, returned); });
  if (cut != Cut::kEarly) note_change(meeting);
  const Clock::time_point begin = Clock::now();
  const bool joint = meeting.joint && run_joint(*meeting.joint, wiring);
  if (!joint) run_steps();
  const int64_t nanoseconds = std::chrono::nanoseconds(Clock::now() - begin).count();
  (joint ? meeting.counts->joint_runs : meeting.counts->steps_runs).fetch_add(1, std::memory_order_relaxed);
  (joint ? meeting.counts->joint_nanoseconds : meeting.counts->steps_nanoseconds)
      .fetch_add(nanoseconds, std::memory_order_relaxed);
  return true;
}

void Region::note_change(const Meeting& meeting) {
  new_in_a_row_ = meeting.seen ? 0 : new_in_a_row_ + 1;
  if (new_in_a_row_ < kMostNew || resting_.load(std::memory_order_relaxed) || !always.load(std::memory_order_relaxed))
    return;
  resting_.store(true);
  cutter_.restart();
}

Region::Wiring Region::wire() const {
  Wiring w;
  w.key.reserve(4 * values_.size());
  Positions positions(values_.size());
  std::vector<hlo::Source> sources;  // by number: where a value comes from
  std::vector<int32_t> held;         // by number
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Recorded& r = steps_[s];
    w.key.push_back(r.step->id);
    const size_t results = r.step->function->results.size();
    for (size_t i = r.inputs; i < r.outputs; ++i) {
      int64_t& number = positions[values_[i].get()];
      // A number that is kept on the device is a parameter each time: that two numbers are equal, this once, would make
      // another region.
      const bool kept_number = values_[i]->type.shape.empty() && !values_[i]->donatable.load(std::memory_order_relaxed);
      if (number < 0 || kept_number) {
        number = static_cast<int64_t>(sources.size());
        sources.push_back({-1, static_cast<int>(w.external.size())});
        held.push_back(0);
        w.external.push_back(i);
      }
      ++held[number];
      w.operands.push_back(sources[number]);
      w.key.push_back(static_cast<uint64_t>(sources[number].call + 1) << 32 |
                      static_cast<uint64_t>(sources[number].index));
    }
    for (size_t k = 0; k < results; ++k) {
      positions[values_[r.outputs + k].get()] = static_cast<int64_t>(sources.size());
      sources.push_back({static_cast<int>(s), static_cast<int>(k)});
      held.push_back(1);
    }
  }
  for (size_t place : w.external) w.held.push_back(held[positions[values_[place].get()]]);
  for (const Recorded& r : steps_) {
    for (size_t k = 0; k < r.step->function->results.size(); ++k) {
      const runtime::ValueRef& value = values_[r.outputs + k];
      const int64_t number = positions[value.get()];
      if (value.use_count() > held[number]) w.returned.push_back(sources[number]);
    }
  }
  return w;
}

Blueprint Region::blueprint(const Wiring& w, const Returned& returned) const {
  Blueprint b;
  b.steps = static_cast<int>(steps_.size());
  std::unordered_set<std::string_view> distinct;
  std::vector<size_t> first_operand;
  size_t next = 0;
  for (const Recorded& r : steps_) {
    const size_t count = r.outputs - r.inputs;
    hlo::Composition::Call call;
    call.function = r.step->function;
    call.operands.assign(w.operands.begin() + static_cast<int64_t>(next),
                         w.operands.begin() + static_cast<int64_t>(next + count));
    first_operand.push_back(next);
    next += count;
    b.composition.calls.push_back(std::move(call));
    b.elements = std::max(b.elements, r.step->elements);
    for (const hlo::Type& type : r.step->function->results) b.all_elements += element_count(type.shape);
    distinct.insert(r.step->function->text);
  }
  b.distinct_steps = static_cast<int>(distinct.size());
  for (size_t place : w.external) b.composition.parameters.push_back(values_[place]->type);
  b.composition.donated_to.assign(w.external.size(), -1);
  b.composition.results = returned;
  b.unreturned = b.all_elements;
  for (const hlo::Source& result : returned) b.unreturned -= element_count(values_[place_of(result)]->type.shape);
  // A result may take the memory of the operand at the start of its chain of overwrites.
  for (size_t result = 0; result < returned.size(); ++result) {
    hlo::Source source = returned[result];
    const hlo::Type& type = values_[place_of(source)]->type;
    while (source.call >= 0) {
      const auto& donations = steps_[source.call].step->donations;
      auto donation =
          std::find_if(donations.begin(), donations.end(), [&](const Donation& d) { return d.output == source.index; });
      if (donation == donations.end()) break;
      source = w.operands[first_operand[source.call] + donation->parameter];
    }
    if (source.call >= 0 || b.composition.donated_to[source.index] >= 0) continue;
    if (values_[w.external[source.index]]->type == type)
      b.composition.donated_to[source.index] = static_cast<int>(result);
  }
  return b;
}

// False if nothing has run: then the steps may be tried one by one.
bool Region::run_joint(const Joint& joint, const Wiring& w) {
  std::vector<PJRT_Buffer*> arguments, outputs;
  std::vector<int64_t> kept;
  for (size_t place : w.external) {
    if (values_[place]->failure) return false;
    arguments.push_back(values_[place]->buffer.get());
  }
  int64_t bytes = joint.program->temporary_bytes;
  for (const hlo::Source& result : joint.results) bytes += values_[place_of(result)]->bytes;
  int64_t donations = 0;
  for (int parameter : joint.donated) {
    const runtime::ValueRef& value = values_[w.external[parameter]];
    if (value.use_count() > w.held[parameter] || !value->donatable.load(std::memory_order_relaxed)) {
      kept.push_back(parameter);
    } else {
      ++donations;
      value->consumed = true;
      bytes -= value->bytes;
    }
  }
  outputs.resize(joint.results.size());
  const Status status = launch({"region", joint.program, device_, bytes, arguments, kept}, outputs);
  if (!status.ok()) {
    const bool consumed = std::any_of(joint.donated.begin(), joint.donated.end(),
                                      [&](int parameter) { return values_[w.external[parameter]]->buffer.deleted(); });
    if (!consumed) {
      for (int parameter : joint.donated) values_[w.external[parameter]]->consumed = false;
      return false;
    }
    for (const hlo::Source& result : w.returned)
      fail(values_[place_of(result)], failure_of(status.error(), *steps_[result.call].step));
    return true;
  }
  runtime::totals().donations += donations;
  ++runtime::totals().joint_executions;
  // Before the results are counted as memory: what was overwritten is gone.
  for (const Recorded& recorded : steps_)
    for (size_t i = recorded.inputs; i < recorded.outputs; ++i) values_[i] = {};
  // What nobody needs this time is dropped here.
  const pjrt::Client& client = runtime::Engine::get().value()->client();
  auto needed = w.returned.begin();
  for (size_t i = 0; i < joint.results.size(); ++i) {
    pjrt::Buffer buffer(&client, outputs[i]);
    if (needed == w.returned.end() || !(*needed == joint.results[i])) continue;
    values_[place_of(*needed++)]->settle(std::move(buffer));
  }
  return true;
}

void Region::run_steps() {
  for (const Recorded& recorded : steps_) run_step(recorded);
}

void Region::run_step(const Recorded& r) {
  const Step& step = *r.step;
  const size_t results = step.function->results.size();
  FailureRef failure;
  std::vector<PJRT_Buffer*> arguments, outputs;
  for (size_t i = r.inputs; i < r.outputs && !failure; ++i) {
    failure = values_[i]->failure;
    arguments.push_back(values_[i]->buffer.get());
  }
  if (!failure) {
    std::vector<int64_t> kept;
    int64_t bytes = step.bytes;
    // The references of earlier steps are gone, so a value that is only ours is held once.
    for (const Donation& donation : step.donations) {
      const runtime::ValueRef& value = values_[r.inputs + donation.parameter];
      if (value.use_count() > 1 || !value->donatable.load(std::memory_order_relaxed)) {
        kept.push_back(donation.parameter);
      } else {
        value->consumed = true;
        bytes -= value->bytes;
      }
    }
    runtime::totals().donations += static_cast<int64_t>(step.donations.size() - kept.size());
    outputs.resize(results);
    const Status status = launch({step.name, step.program, device_, bytes, arguments, kept}, outputs);
    if (!status.ok()) failure = failure_of(status.error(), step);
  }
  // Before the results are counted as memory: what was overwritten is gone.
  for (size_t i = r.inputs; i < r.outputs; ++i) values_[i] = {};
  for (size_t k = 0; k < results; ++k) {
    const runtime::ValueRef& value = values_[r.outputs + k];
    if (failure)
      fail(value, failure);
    else
      value->settle(pjrt::Buffer(&runtime::Engine::get().value()->client(), outputs[k]));
  }
  for (size_t k = 0; k < results; ++k) values_[r.outputs + k] = {};
}

void Region::fail(const runtime::ValueRef& value, const FailureRef& failure) {
  value->fail(failure);
  std::erase_if(failures_, [](const auto& f) { return f.second->told.load(std::memory_order_relaxed); });
  const bool waits = std::any_of(failures_.begin(), failures_.end(), [&](const auto& f) { return f.first == device_; });
  if (!waits) failures_.emplace_back(device_, failure);
}

Recording::Recording() {
  thread_state.own_region();
  ++thread_state.depth;
}

Status Recording::finish() {
  open_ = false;
  if (--thread_state.depth > 0 || Region::recording() != nullptr) return {};
  thread_state.region->pay(Cut::kSynchronize);
  return thread_state.region->take_failure(-1);
}

Recording::~Recording() {
  // Unwinding: what was recorded before the error has happened.
  if (open_) (void)finish();
}

}  // namespace torch_tpu::fuse
