#include "fuse/regions.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_map>

#include "base/env.h"
#include "base/hash.h"
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
// knew the future. What an earlier process compiled is only loaded, so that is tried at the second run.
constexpr double kSecondsPerStep = 4e-6, kSecondsPerElement = 0.5e-9, kCompileSecondsPerStep = 0.03 / 3;
constexpr int64_t kTryDiskAt = 2;
constexpr size_t kKept = 1024;

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
  const auto runs = static_cast<int64_t>(kCompileSecondsPerStep * b.distinct_steps / seconds_saved(b)) + 1;
  return std::max(kTryDiskAt + 1, runs);
}

struct Known {
  RegionKey key;
  JointRef joint = std::make_shared<Joint>();
  int64_t runs = 0, compile_at = 0;
  uint64_t used = 0;
  // From the second run on:
  std::vector<const char*> names;
  int64_t results = 0;
  bool worth = true;
};

struct HashOf {
  size_t operator()(const Hash128& h) const { return h.low; }
};

struct Table {
  std::mutex mutex;
  std::unordered_map<Hash128, Known, HashOf> known;
  uint64_t clock = 0;

  void evict() {
    auto oldest = std::min_element(known.begin(), known.end(),
                                   [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    known.erase(oldest);
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

void build(const JointRef& joint, const std::shared_ptr<const Blueprint>& blueprint, int device, bool cached_only) {
  if (joint->ready.load()) return;
  auto engine = runtime::Engine::get();
  if (!engine.ok()) return;
  auto program = store::get(engine.value()->client(), request_of(*blueprint, device, cached_only));
  if (!program.ok()) return;  // the steps go on one by one
  joint->program = program.take();
  const auto& donated_to = blueprint->composition.donated_to;
  for (size_t i = 0; i < donated_to.size(); ++i)
    if (donated_to[i] >= 0) joint->donated.push_back(static_cast<int>(i));
  joint->ready.store(true, std::memory_order_release);
}

}  // namespace

JointRef find_joint(const RegionKey& key, int device, const std::function<Blueprint()>& blueprint) {
  const Hash128 hash = hash128(key.data(), key.size() * sizeof(uint64_t));
  Table& t = table();
  JointRef joint;
  bool try_disk = false, compile = false;
  {
    std::lock_guard lock(t.mutex);
    if (t.known.size() > kKept) t.evict();
    Known& known = t.known[hash];
    if (known.key != key) {  // new, or two keys of one hash: the later one stays
      known = Known();
      known.key = key;
    }
    known.used = ++t.clock;
    ++known.runs;
    joint = known.joint;
    if (joint->ready.load(std::memory_order_acquire)) return joint;
    try_disk = known.runs == kTryDiskAt;
    compile = known.runs > kTryDiskAt && known.runs == known.compile_at;
  }
  if (!try_disk && !compile) return joint;
  auto plan = std::make_shared<const Blueprint>(blueprint());
  if (try_disk) {
    const bool worth = worth_it(*plan);
    std::lock_guard lock(t.mutex);
    if (auto place = t.known.find(hash); place != t.known.end() && place->second.joint == joint) {
      Known& known = place->second;
      known.names = plan->names;
      known.results = static_cast<int64_t>(plan->composition.results.size());
      known.worth = worth;
      if (worth) known.compile_at = compile_at(*plan);
    }
    if (!worth) return joint;
  }
  store::background::enqueue([joint, plan, device, try_disk] { build(joint, plan, device, /*cached_only=*/try_disk); });
  return joint;
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
  if (known.joint->ready.load()) return "one program";
  if (known.names.empty()) return "new";
  if (!known.worth) return "not worth a program of its own";
  if (known.runs < known.compile_at) return "compiles at run " + std::to_string(known.compile_at);
  return "compiling, or its compile failed";
}

}  // namespace

std::vector<RegionReport> region_reports() {
  Table& t = table();
  std::vector<RegionReport> reports;
  {
    std::lock_guard lock(t.mutex);
    for (const auto& [hash, known] : t.known)
      reports.push_back({known.names.empty() ? "seen once" : in_words(known.names),
                         static_cast<int64_t>(known.names.size()), known.runs, known.joint->runs.load(), known.results,
                         state_of(known)});
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
