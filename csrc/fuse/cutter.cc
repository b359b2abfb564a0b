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

bool Cutter::ends_before(uint64_t op) { return ops_.size() >= kLeastOps && op == ops_.front() && is_period(); }

bool Cutter::is_period() {
  if (periods_.contains(hash_)) return true;
  const size_t half = ops_.size() / 2;
  if (ops_.size() % 2 != 0 || half < kLeastOps) return false;
  if (!std::equal(ops_.begin(), ops_.begin() + static_cast<int64_t>(half), ops_.begin() + static_cast<int64_t>(half)))
    return false;
  uint64_t hash = 0;
  for (size_t i = 0; i < half; ++i) hash = extended(hash, ops_[i]);
  if (periods_.size() >= kMostPeriods) periods_.clear();
  periods_.insert(hash);
  return true;
}

void Cutter::append(uint64_t op) {
  ops_.push_back(op);
  hash_ = extended(hash_, op);
}

void Cutter::restart() {
  ops_.clear();
  hash_ = 0;
}

}  // namespace torch_tpu::fuse
