#include "fuse/regions.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>
#include <unordered_map>

#include "base/env.h"
#include "base/hash.h"
#include "fuse/changes.h"
#include "runtime/engine.h"
#include "runtime/statistics.h"
#include "store/background.h"

namespace torch_tpu::fuse {
namespace {

// Note [When a region is compiled]
// One program instead of n saves about kSecondsPerStep for each step but one, and the writing and reading of results
// that nobody needs outside. Where that is less than a tenth of what the steps take anyway (kSecondsPerElement for
// every result) it is not worth a program: measured, AdamW over the 62 tensors of a ResNet-18 does not gain, over the 4
// of a small MLP it takes 7.6 us instead of 11.7. A compile takes about kCompileSecondsPerStep for each step that
// differs from the others (equal ones are compiled once) and, being beside the ops, costs them a third of that. It
// starts when the runs seen would have saved as much as it costs: at worst twice as much is spent as by a choice that
// knew the future. A region that saves more than kSavesMuch each time is a loop's body once it has come by three times,
// and starts then: the worker takes at most a quarter of the wall time anyway (store/background.h). What an earlier
// process compiled is only loaded, so that is tried at the second run.
constexpr double kSecondsPerStep = 4e-6, kSecondsPerElement = 0.5e-9, kCompileSecondsPerStep = 0.03 / 3;
constexpr double kSavesMuch = 10e-6;
constexpr int64_t kTryDiskAt = 2;
constexpr size_t kKept = 1024;
// A program takes 0.5-0.8 MiB of host memory.
constexpr size_t kMostPrograms = 256;

// Note [Results that are not always needed]
// Whether somebody holds a result at the end of a region depends on Python's garbage collector and on what the user
// keeps. So a region's program returns whatever any of its runs so far has needed; a run that needs less drops the
// rest, and one that needs more goes op by op until enough of these have come to pay for another program.

double seconds_saved(const Blueprint& b) {
  return kSecondsPerStep * (b.steps - 1) + 2 * kSecondsPerElement * static_cast<double>(b.unreturned);
}

// TORCH_TPU_FUSE_AFTER: for tests and experiments.
int64_t fixed_run() {
  static const int64_t run = [] {
    const Result<int64_t> given = env::integer("TORCH_TPU_FUSE_AFTER", 0, INT64_MAX);
    return given.ok() ? given.value() : 0;  // the error was raised when the engine opened
  }();
  return run;
}

bool worth_it(const Blueprint& b) {
  return fixed_run() > 0 || seconds_saved(b) > 0.1 * kSecondsPerElement * static_cast<double>(b.all_elements);
}

// The run at which the compile starts.
int64_t compile_at(const Blueprint& b) {
  if (fixed_run() > 0) return std::max(kTryDiskAt + 1, fixed_run());
  if (seconds_saved(b) >= kSavesMuch) return kTryDiskAt + 1;
  const auto runs = static_cast<int64_t>(kCompileSecondsPerStep * b.distinct_steps / seconds_saved(b)) + 1;
  return std::max(kTryDiskAt + 1, runs);
}

bool operator<(const hlo::Source& a, const hlo::Source& b) {
  return a.call != b.call ? a.call < b.call : a.index < b.index;
}
bool covers(const Returned& results, const Returned& needed) {
  return results == needed || std::includes(results.begin(), results.end(), needed.begin(), needed.end(),
                                            [](const auto& a, const auto& b) { return a < b; });
}
void widen(Returned& results, const Returned& needed) {
  Returned both;
  std::set_union(results.begin(), results.end(), needed.begin(), needed.end(), std::back_inserter(both),
                 [](const auto& a, const auto& b) { return a < b; });
  results = std::move(both);
}

struct Known {
  RegionKey key;
  JointRef joint;    // null until one is compiled
  Returned results;  // needed by any run so far
  std::shared_ptr<RegionCounts> counts = std::make_shared<RegionCounts>();
  int64_t runs = 0;
  int64_t uncovered = 0;   // runs that the joint does not serve, and all before there is one
  int64_t compile_at = 0;  // of these
  uint64_t used = 0;
  std::array<int64_t, kCuts> cuts{};
  std::string why;
  bool worth = true, compiling = false, failed = false;
  // From the second run on:
  std::vector<const char*> names;
  int64_t bytes = 0;
};

struct HashOf {
  size_t operator()(const Hash128& h) const { return h.low; }
};

struct Table {
  std::mutex mutex;
  std::unordered_map<Hash128, Known, HashOf> known;
  uint64_t clock = 0;
  Changes changes;

  void evict() {
    auto oldest = std::min_element(known.begin(), known.end(),
                                   [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    known.erase(oldest);
  }
  // Forgets the region with a program that came by longest ago.
  void bound_programs() {
    size_t programs = 0;
    auto oldest = known.end();
    for (auto it = known.begin(); it != known.end(); ++it) {
      if (!it->second.joint) continue;
      ++programs;
      if (oldest == known.end() || it->second.used < oldest->second.used) oldest = it;
    }
    if (programs > kMostPrograms) known.erase(oldest);
  }
  // Null if the region has been forgotten meanwhile.
  Known* find(const Hash128& hash, const std::shared_ptr<RegionCounts>& counts) {
    auto place = known.find(hash);
    return place != known.end() && place->second.counts == counts ? &place->second : nullptr;
  }
};

Table& table() {
  static auto* const instance = new Table;
  return *instance;
}

store::Request request_of(const Blueprint& blueprint, int device, bool cached_only) {
  store::Request request;
  request.text = blueprint.composition.text();
  request.profile = store::Profile::kFull;
  request.device = device;
  request.op = "region of " + std::to_string(blueprint.steps) + " ops";
  request.detail = std::to_string(blueprint.composition.parameters.size()) + " parameters, " +
                   std::to_string(blueprint.composition.results.size()) + " results";
  request.why = "the same ops keep returning in this order";
  request.elements = blueprint.elements;
  request.background = true;
  request.cached_only = cached_only;
  return request;
}

// A compile on the background's thread, or the loading of what an earlier process compiled.
struct Work {
  Hash128 hash;
  std::shared_ptr<RegionCounts> counts;
  Blueprint blueprint;
  int device;
  bool cached_only;
};

std::shared_ptr<Joint> build(const Work& work) {
  auto engine = runtime::Engine::get();
  if (!engine.ok()) return nullptr;
  auto program = store::get(engine.value()->client(), request_of(work.blueprint, work.device, work.cached_only));
  if (!program.ok()) return nullptr;  // the steps go on one by one
  auto joint = std::make_shared<Joint>();
  joint->program = program.take();
  joint->results = work.blueprint.composition.results;
  const auto& donated_to = work.blueprint.composition.donated_to;
  for (size_t i = 0; i < donated_to.size(); ++i)
    if (donated_to[i] >= 0) joint->donated.push_back(static_cast<int>(i));
  return joint;
}

void work_on(const Work& work) {
  std::shared_ptr<Joint> joint = build(work);
  Table& t = table();
  std::lock_guard lock(t.mutex);
  Known* known = t.find(work.hash, work.counts);
  if (known == nullptr) return;
  known->compiling = false;
  known->uncovered = 0;
  if (!joint) {
    known->failed = !work.cached_only;
    if (work.cached_only) known->uncovered = kTryDiskAt;
    return;
  }
  if (known->joint)
    known->why = "compiled again: " + std::to_string(joint->results.size() - known->joint->results.size()) +
                 " more results are needed now";
  known->joint = std::move(joint);
  t.bound_programs();
}

int64_t bytes_of(const Blueprint& b) {
  int64_t bytes = 0;
  for (const hlo::Source& source : b.composition.results) {
    const hlo::Type& type = b.composition.calls[source.call].function->results[source.index];
    bytes += element_count(type.shape) * byte_size(type.dtype);
  }
  return bytes;
}

}  // namespace

Meeting meet(const RegionKey& key, const std::function<std::vector<StepRef>()>& steps, const Returned& returned,
             int device, Cut cut, const std::function<Blueprint(const Returned&)>& blueprint) {
  const Hash128 hash = hash128(key.data(), key.size() * sizeof(uint64_t));
  Table& t = table();
  Meeting meeting;
  Returned wanted;
  bool try_disk = false, compile = false;
  {
    std::lock_guard lock(t.mutex);
    if (cut == Cut::kEarly) {
      auto place = t.known.find(hash);
      if (place != t.known.end() && place->second.key == key) {
        meeting.counts = place->second.counts;
        meeting.seen = true;
        if (place->second.joint && covers(place->second.joint->results, returned)) meeting.joint = place->second.joint;
      } else {
        meeting.counts = std::make_shared<RegionCounts>();
      }
      return meeting;
    }
    if (t.known.size() > kKept) t.evict();
    Known& known = t.known[hash];
    if (known.key != key) {  // new, or two keys of one hash: the later one stays
      known = Known();
      known.key = key;
      known.why = t.changes.note(steps());
    }
    known.used = ++t.clock;
    meeting.seen = ++known.runs > 1;
    meeting.counts = known.counts;
    ++known.cuts[static_cast<size_t>(cut)];
    if (known.joint && covers(known.joint->results, returned)) {
      meeting.joint = known.joint;
      return meeting;
    }
    if (!covers(known.results, returned)) widen(known.results, returned);
    ++known.uncovered;
    if (known.compiling || known.failed || !known.worth) return meeting;
    try_disk = known.runs == kTryDiskAt;
    compile = known.runs > kTryDiskAt && known.uncovered >= known.compile_at;
    if (!try_disk && !compile) return meeting;
    known.compiling = true;
    wanted = known.results;
  }
  auto work = std::make_shared<Work>(Work{hash, meeting.counts, blueprint(wanted), device, try_disk});
  if (try_disk) {
    std::lock_guard lock(t.mutex);
    Known* known = t.find(hash, meeting.counts);
    if (known == nullptr) return meeting;
    for (const StepRef& step : steps()) known->names.push_back(step->name);
    known->bytes = bytes_of(work->blueprint);
    known->worth = worth_it(work->blueprint);
    known->compile_at = compile_at(work->blueprint);
    if (!known->worth) {
      known->compiling = false;
      return meeting;
    }
  }
  store::background::enqueue([work] { work_on(*work); });
  return meeting;
}

namespace {

std::string in_words(const std::vector<const char*>& names) {
  constexpr size_t kShown = 4;
  std::string text = std::to_string(names.size()) + " ops: ";
  for (size_t i = 0; i < names.size(); ++i) {
    const bool shown = i < kShown || i + 1 == names.size();
    if (shown) text += (i > 0 ? ", " : "") + std::string(names[i]);
    if (i == kShown && !shown) text += ", ...";
  }
  return text;
}

std::string state_of(const Known& known) {
  if (known.joint) return "one program";
  if (known.names.empty()) return "new";
  if (!known.worth) return "not worth a program of its own";
  if (known.failed) return "its compile failed";
  if (known.compiling) return "compiling";
  return "compiles at run " + std::to_string(known.runs - known.uncovered + known.compile_at);
}

std::string most_often(const std::array<int64_t, kCuts>& cuts) {
  static constexpr std::array<const char*, kCuts> names = {"a read",
                                                           "a read by another thread",
                                                           "a synchronisation",
                                                           "a new round",
                                                           "its size",
                                                           "its work",
                                                           "another device",
                                                           "a pause"};
  return names[static_cast<size_t>(std::max_element(cuts.begin(), cuts.end()) - cuts.begin())];
}

RegionReport report_of(const Known& known) {
  RegionReport r;
  r.ops = known.names.empty() ? "seen once" : in_words(known.names);
  r.steps = static_cast<int64_t>(known.names.size());
  r.runs = known.runs;
  const RegionCounts& counts = *known.counts;
  r.strict = counts.steps_runs.load();
  r.joint = counts.joint_runs.load();
  if (r.strict > 0 && r.joint > 0)
    r.seconds_saved = 1e-9 * static_cast<double>(r.joint) *
                      (static_cast<double>(counts.steps_nanoseconds.load()) / static_cast<double>(r.strict) -
                       static_cast<double>(counts.joint_nanoseconds.load()) / static_cast<double>(r.joint));
  r.results = static_cast<int64_t>(known.results.size());
  r.bytes = known.bytes;
  r.cut = most_often(known.cuts);
  r.state = state_of(known);
  r.why = known.why;
  return r;
}

}  // namespace

std::vector<RegionReport> region_reports() {
  Table& t = table();
  std::vector<RegionReport> reports;
  {
    std::lock_guard lock(t.mutex);
    for (const auto& [hash, known] : t.known) reports.push_back(report_of(known));
  }
  std::sort(reports.begin(), reports.end(),
            [](const RegionReport& a, const RegionReport& b) { return a.runs * a.steps > b.runs * b.steps; });
  return reports;
}

size_t known_regions() {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  return t.known.size();
}

}  // namespace torch_tpu::fuse
