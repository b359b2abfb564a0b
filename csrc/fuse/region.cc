#include "fuse/region.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "runtime/engine.h"
#include "runtime/hooks.h"
#include "runtime/statistics.h"

namespace torch_tpu::fuse {
namespace {

// A region that grows beyond this runs: the values it holds are memory.
constexpr size_t kMostSteps = 1024;
constexpr int64_t kMostBytes = int64_t{256} << 20;

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

  Region* take() {
    std::lock_guard lock(mutex);
    if (spare.empty()) {
      all.push_back(new Region);
      return all.back();
    }
    Region* region = spare.back();
    spare.pop_back();
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
  Region* region = nullptr;
  int depth = 0;

  Region* own_region() {
    if (region == nullptr) region = registry().take();
    return region;
  }
  ~ThreadState() {
    if (region == nullptr || pjrt::abandoned()) return;
    region->pay();
    registry().give_back(region);
  }
};
thread_local ThreadState thread_state;
std::atomic<bool> always{false};

Status flush(int device) {
  Status first;
  for (Region* region : registry().snapshot())
    if (Status status = region->pay_device(device); first.ok()) first = std::move(status);
  return first;
}

}  // namespace

// How the recorded values hang together.
struct Region::Wiring {
  std::vector<hlo::Source> operands;  // of all steps, one after the other
  std::vector<size_t> external;       // per parameter: its position in values_
  std::vector<int32_t> held;          // per parameter: how many references the region holds
  std::vector<hlo::Source> returned;  // results that somebody outside holds
  std::vector<size_t> places;         // and their positions in values_
  RegionKey key;
};

Region* Region::recording() {
  if (always.load(std::memory_order_relaxed)) return thread_state.own_region();
  return thread_state.depth > 0 ? thread_state.region : nullptr;
}

void set_recording(bool on) {
  static const bool hooked = [] {
    runtime::hooks::set_flush(&flush);
    runtime::Engine::before_shutdown([] {
      always.store(false);
      for (Region* region : registry().snapshot()) region->pay();
    });
    return true;
  }();
  (void)hooked;
  always.store(on);
  if (!on && thread_state.region != nullptr && thread_state.depth == 0) thread_state.region->pay();
}

void Region::record(const StepRef& step, int device, std::span<const runtime::ValueRef> inputs,
                    std::span<runtime::ValueRef> outputs) {
  std::lock_guard lock(mutex_);
  if (!steps_.empty() && (device != device_ || steps_.size() >= kMostSteps || bytes_ >= kMostBytes)) run_all();
  if (cutter_.ends_before(step->id)) run_all();
  cutter_.append(step->id);
  device_ = device;
  Recorded recorded{step, values_.size(), values_.size() + inputs.size()};
  values_.insert(values_.end(), inputs.begin(), inputs.end());
  for (size_t k = 0; k < outputs.size(); ++k) {
    const hlo::Type& type = step->function->results[k];
    const int64_t bytes = element_count(type.shape) * byte_size(type.dtype);
    bytes_ += bytes;
    runtime::ValueRef value(new runtime::BufferValue(*this, type, device, bytes));
    value->producer = step->name;
    values_.push_back(value);
    outputs[k] = std::move(value);
  }
  steps_.push_back(std::move(recorded));
}

void Region::pay() {
  if (pjrt::abandoned()) return;  // the lock may be a parent thread's
  std::lock_guard lock(mutex_);
  run_all();
}

Status Region::pay_device(int device) {
  std::lock_guard lock(mutex_);
  if (device != device_) return {};
  run_all();
  if (!failure_) return {};
  Error error = std::move(*failure_);
  failure_.reset();
  return error;
}

Status Region::failure() {
  std::lock_guard lock(mutex_);
  if (!failure_) return {};
  Error error = std::move(*failure_);
  failure_.reset();
  return error;
}

// Ends with every recorded value settled or failed and nothing recorded.
void Region::run_all() {
  if (steps_.empty()) return;
  bool done = false;
  if (steps_.size() > 1) {
    const Wiring wiring = wire();
    const JointRef joint = find_joint(wiring.key, device_, [&] { return blueprint(wiring); });
    done = joint->ready.load(std::memory_order_acquire) && run_joint(*joint, wiring);
  }
  if (!done) run_steps();
  steps_.clear();
  values_.clear();
  bytes_ = 0;
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
      if (number < 0) {
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
      if (value.use_count() <= held[number]) continue;
      w.returned.push_back(sources[number]);
      w.places.push_back(r.outputs + k);
      w.key.push_back(
          ~(static_cast<uint64_t>(sources[number].call) << 32 | static_cast<uint64_t>(sources[number].index)));
    }
  }
  return w;
}

Blueprint Region::blueprint(const Wiring& w) const {
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
    b.names.push_back(r.step->name);
  }
  b.distinct_steps = static_cast<int>(distinct.size());
  for (size_t place : w.external) b.composition.parameters.push_back(values_[place]->type);
  b.composition.donated_to.assign(w.external.size(), -1);
  b.composition.results = w.returned;
  b.unreturned = b.all_elements;
  for (size_t place : w.places) b.unreturned -= element_count(values_[place]->type.shape);
  // A result may take the memory of the operand at the start of its chain of overwrites.
  for (size_t result = 0; result < w.returned.size(); ++result) {
    hlo::Source source = w.returned[result];
    const hlo::Type& type = values_[w.places[result]]->type;
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
bool Region::run_joint(Joint& joint, const Wiring& w) {
  std::vector<PJRT_Buffer*> arguments, outputs;
  std::vector<int64_t> kept;
  for (size_t place : w.external) {
    if (values_[place]->failure) return false;
    arguments.push_back(values_[place]->buffer.get());
  }
  int64_t bytes = joint.program->temporary_bytes;
  for (size_t place : w.places) bytes += values_[place]->bytes;
  int64_t donations = 0;
  for (int parameter : joint.donated) {
    const runtime::ValueRef& value = values_[w.external[parameter]];
    if (value.use_count() > w.held[parameter] || !value->donatable.load(std::memory_order_relaxed)) {
      kept.push_back(parameter);
    } else {
      ++donations;
      bytes -= value->bytes;
    }
  }
  outputs.resize(w.places.size());
  const Status status = launch({"region", joint.program, device_, bytes, arguments, kept}, outputs);
  if (!status.ok()) {
    const bool consumed = std::any_of(joint.donated.begin(), joint.donated.end(),
                                      [&](int parameter) { return values_[w.external[parameter]]->buffer.deleted(); });
    if (!consumed) return false;
    for (size_t place : w.places) fail(values_[place], status.error());
    return true;
  }
  runtime::totals().donations += donations;
  ++runtime::totals().joint_executions;
  joint.runs.fetch_add(1, std::memory_order_relaxed);
  // Before the results are counted as memory: what was overwritten is gone.
  for (const Recorded& recorded : steps_)
    for (size_t i = recorded.inputs; i < recorded.outputs; ++i) values_[i] = {};
  const pjrt::Client& client = runtime::Engine::get().value()->client();
  for (size_t i = 0; i < w.places.size(); ++i) values_[w.places[i]]->settle(pjrt::Buffer(&client, outputs[i]));
  return true;
}

void Region::run_steps() {
  for (const Recorded& recorded : steps_) run_step(recorded);
}

void Region::run_step(const Recorded& r) {
  const Step& step = *r.step;
  const size_t results = step.function->results.size();
  std::optional<Error> error;
  std::vector<PJRT_Buffer*> arguments, outputs;
  for (size_t i = r.inputs; i < r.outputs && !error; ++i) {
    if (values_[i]->failure) error = *values_[i]->failure;
    arguments.push_back(values_[i]->buffer.get());
  }
  if (!error) {
    std::vector<int64_t> kept;
    int64_t bytes = step.bytes;
    // The references of earlier steps are gone, so a value that is only ours is held once.
    for (const Donation& donation : step.donations) {
      const runtime::ValueRef& value = values_[r.inputs + donation.parameter];
      if (value.use_count() > 1 || !value->donatable.load(std::memory_order_relaxed))
        kept.push_back(donation.parameter);
      else
        bytes -= value->bytes;
    }
    runtime::totals().donations += static_cast<int64_t>(step.donations.size() - kept.size());
    outputs.resize(results);
    const Status status = launch({step.name, step.program, device_, bytes, arguments, kept}, outputs);
    if (!status.ok()) error = status.error();
  }
  // Before the results are counted as memory: what was overwritten is gone.
  for (size_t i = r.inputs; i < r.outputs; ++i) values_[i] = {};
  for (size_t k = 0; k < results; ++k) {
    const runtime::ValueRef& value = values_[r.outputs + k];
    if (error)
      fail(value, *error);
    else
      value->settle(pjrt::Buffer(&runtime::Engine::get().value()->client(), outputs[k]));
  }
  for (size_t k = 0; k < results; ++k) values_[r.outputs + k] = {};
}

void Region::fail(const runtime::ValueRef& value, const Error& error) {
  if (!failure_) failure_ = error;
  value->fail(error);
}

Recording::Recording() {
  thread_state.own_region();
  ++thread_state.depth;
}

Status Recording::finish() {
  open_ = false;
  if (--thread_state.depth > 0 || always.load(std::memory_order_relaxed)) return {};
  thread_state.region->pay();
  return thread_state.region->failure();
}

Recording::~Recording() {
  // Unwinding: what was recorded before the error has happened.
  if (open_) (void)finish();
}

}  // namespace torch_tpu::fuse
