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

// What makes two regions the same program: their steps, the wiring, which results are returned.
using RegionKey = std::vector<uint64_t>;

// What compiling a region takes, apart from its values.
struct Blueprint {
  hlo::Composition composition;
  int64_t elements = 0;      // of the largest value
  int64_t all_elements = 0;  // of all steps' results together
  int64_t unreturned = 0;    // of those that nobody needs outside
  int steps = 0;
  int distinct_steps = 0;
  std::vector<const char*> names;  // of the steps, which live for ever
};

// The one program of a region.
struct Joint {
  // Set before `ready`.
  store::ProgramRef program;
  std::vector<int> donated;  // parameters that may give their memory
  std::atomic<bool> ready{false};
  std::atomic<int64_t> runs{0};
};
using JointRef = std::shared_ptr<Joint>;

// What is known of one region, for torch.tpu.explain_regions().
struct RegionReport {
  std::string ops;      // "12 ops: aten::addmm, aten::relu, ... aten::mm"
  int64_t steps = 0;    // ops
  int64_t runs = 0;     // times it came by
  int64_t joint = 0;    // of these, as one program
  int64_t results = 0;  // tensors that somebody outside needs
  std::string state;    // "new", "one program", "compiles at run 50", "not worth a program", ...
};

// Counts a run of the region on the device and returns its joint program, ready or not (never null). Starts its compile
// in the background when it is expected to pay; only then asks for the blueprint.
JointRef find_joint(const RegionKey& key, int device, const std::function<Blueprint()>& blueprint);
// Every region known, those that ran most often first.
std::vector<RegionReport> region_reports();
// Number of regions known.
size_t known_regions();

}  // namespace torch_tpu::fuse
