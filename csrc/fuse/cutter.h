// Decides where a stream of recorded ops is cut into regions, from the stream alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

namespace torch_tpu::fuse {

// Note [Where a region is cut]
// A region that is cut at another place each time never returns. Host reads cut where the program reads; between them a
// training loop only repeats itself, and the cut has to be at the same op of every round. So a region is cut before an
// op that equals its first one, once what lies between has been seen to be a period: the ops since the start are twice
// the same sequence, or a sequence known from such an observation.
class Cutter {
 public:
  // Does the region end before this op?
  bool ends_before(uint64_t op);
  // The op is recorded.
  void append(uint64_t op);
  // The region was run, for whatever reason: the next op is the first of a new one.
  void restart();
  size_t known_periods() const { return periods_.size(); }

 private:
  bool is_period();

  std::vector<uint64_t> ops_;
  uint64_t hash_ = 0;
  std::unordered_set<uint64_t> periods_;  // hashes of sequences
};

}  // namespace torch_tpu::fuse
