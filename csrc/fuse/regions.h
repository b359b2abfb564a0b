// Regions seen before: how often they ran, and the one program of those that are worth it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fuse/step.h"

namespace torch_tpu::fuse {

// What makes two regions the same work: their steps and the wiring. Which results are returned is apart.
using RegionKey = std::vector<uint64_t>;
// Results that somebody outside of a region holds, in the order of (call, index).
using Returned = std::vector<hlo::Source>;

// What compiling a region takes, apart from its values.
struct Blueprint {
  hlo::Composition composition;
  int64_t elements = 0;      // of the largest value
  int64_t all_elements = 0;  // of all steps' results together
  int64_t unreturned = 0;    // of those that nobody needs outside
  int steps = 0;
  int distinct_steps = 0;
};

// The one program of a region.
struct Joint {
  store::ProgramRef program;
  std::vector<int> donated;  // parameters that may give their memory
  Returned results;
};
using JointRef = std::shared_ptr<const Joint>;

// Why a region ran.
enum class Cut {
  kRead,         // its thread needs a value
  kOtherThread,  // another one does
  kSynchronize,  // or an event, a query, a switch of the mode or of the stream
  kPeriod,       // the stream of ops begins again (cutter.h)
  kFull,         // it holds too much
  kWork,         // it keeps the device busy for longer than its launch takes
  kDevice,       // the next op is another device's
  kEarly,        // nothing was recorded for a while, or memory is short: not where the stream would be cut
};
constexpr int kCuts = 8;

// How a region's runs went; counted without a lock.
struct RegionCounts {
  std::atomic<int64_t> steps_runs{0}, steps_nanoseconds{0};  // one step after the other
  std::atomic<int64_t> joint_runs{0}, joint_nanoseconds{0};  // as one program
};

// What is known of one region, for torch.tpu.explain_regions().
struct RegionReport {
  std::string ops;           // "12 ops: aten::addmm, aten::relu, ... aten::mm"
  int64_t steps = 0;         // ops
  int64_t runs = 0;          // times it came by
  int64_t strict = 0;        // of these, op by op
  int64_t joint = 0;         // and as one program
  int64_t results = 0;       // tensors that somebody outside needs
  int64_t bytes = 0;         // of these
  double seconds_saved = 0;  // host time, by the means of both kinds of runs
  std::string cut;           // why it ran, most often: "a read", "a new round", ...
  std::string state;         // "new", "one program", "compiles at run 50", "not worth a program", ...
  std::string why;           // what makes it another region than one of the same ops, or why it was compiled again
};

struct Meeting {
  JointRef joint;                        // null: run the steps
  std::shared_ptr<RegionCounts> counts;  // never null
  bool seen = false;                     // it came by before
};

// Counts a run of the region on the device; its program, if it has one that returns what is needed. Starts a compile in
// the background when one is expected to pay; only then asks for the blueprint of a program with the given results.
// Asks for the steps only when something new is to be noted.
// An early run (Cut::kEarly) is not counted and compiles nothing.
Meeting meet(const RegionKey& key, const std::function<std::vector<StepRef>()>& steps, const Returned& returned,
             int device, Cut cut, const std::function<Blueprint(const Returned&)>& blueprint);
// Every region known, those that ran most often first.
std::vector<RegionReport> region_reports();
// Number of regions known.
size_t known_regions();

}  // namespace torch_tpu::fuse
