#include "fuse/cutter.h"

#include <algorithm>

namespace torch_tpu::fuse {
namespace {

// Shorter regions save less than they cost to look up.
constexpr size_t kLeastOps = 8;
constexpr size_t kMostPeriods = 256;

uint64_t extended(uint64_t hash, uint64_t op) {
  hash = (hash ^ op) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

}  // namespace

bool Cutter::ends_before(uint64_t op, int64_t pass) {
  if (pass_ < 0 && pass >= 0) return size_ > 0;
  return (size_ >= kLeastOps && op == first_ && periods_.contains(hash_)) || repeats_before(op);
}

bool Cutter::repeats_before(uint64_t op) {
  const size_t half = window_.size() / 2;
  if (window_.size() % 2 != 0 || half < kLeastOps || op != window_.front() || window_[half] != op) return false;
  const auto middle = window_.begin() + static_cast<int64_t>(half);
  if (!std::equal(window_.begin(), middle, middle)) return false;
  uint64_t hash = 0;
  for (size_t i = 0; i < half; ++i) hash = extended(hash, window_[i]);
  if (periods_.size() >= kMostPeriods) periods_.clear();
  periods_.insert(hash);
  return true;
}

void Cutter::append(uint64_t op, int64_t pass) {
  if (size_++ == 0) first_ = op;
  hash_ = extended(hash_, op);
  pass_ = pass;
  if (window_.size() >= window_limit_) {
    window_.clear();
    window_limit_ = window_limit_ >= kLongestWindow ? kShortestWindow : 2 * window_limit_;
  }
  window_.push_back(op);
}

void Cutter::restart() {
  size_ = 0;
  hash_ = 0;
  pass_ = -1;
  window_.clear();
  window_limit_ = kShortestWindow;
}

}  // namespace torch_tpu::fuse
