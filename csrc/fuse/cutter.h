// Decides where a stream of recorded ops is cut into regions, from the stream alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

namespace torch_tpu::fuse {

// Note [Where a region is cut]
// A region that is cut at another place each time never returns. Host reads cut where the program reads, and the
// beginning of a backward pass is a cut: the device works on the forward pass while the host records the backward pass,
// with which the update and the next forward pass go. Between such places a loop only repeats itself, and the cut has
// to be at the same op of every round. So a region is cut before an op that equals its first one, once what lies
// between has been seen to be a period: twice the same sequence. Where the repetition begins is not known (the first
// round is often another one), so it is looked for from a fixed op on, which moves, in ever longer windows.
class Cutter {
 public:
  // Does the region end before this op? `pass`: the backward pass that the op is part of, or -1.
  bool ends_before(uint64_t op, int64_t pass = -1);
  // The op is recorded.
  void append(uint64_t op, int64_t pass = -1);
  // The region was run, for whatever reason: the next op is the first of a new one.
  void restart();
  size_t known_periods() const { return periods_.size(); }

  // Has what was appended since the last restart been seen to repeat itself before this op? Learns the period.
  bool repeats_before(uint64_t op);

 private:
  // Of the present region.
  size_t size_ = 0;
  uint64_t first_ = 0, hash_ = 0;
  int64_t pass_ = -1;
  // Where a repetition is looked for; it may begin in the middle of the region.
  std::vector<uint64_t> window_;
  size_t window_limit_ = kShortestWindow;
  std::unordered_set<uint64_t> periods_;  // hashes of sequences

  static constexpr size_t kShortestWindow = 1024, kLongestWindow = 65536;
};

}  // namespace torch_tpu::fuse
