#include "aten/op_cache.h"

#include <algorithm>
#include <vector>

#include "aten/storage.h"
#include "base/env.h"
#include "runtime/statistics.h"

namespace torch_tpu::aten {

OpCache& OpCache::instance() {
  static auto* cache = new OpCache;  // never destroyed: kernels may run while the process exits
  return *cache;
}

OpCache::OpCache()
    : capacity_(static_cast<size_t>(take(env::integer("TORCH_TPU_PROGRAM_CACHE_ENTRIES", 16, 1 << 30)))) {}

EntryRef OpCache::find(const KeyWords& key) {
  const Hash128 hash = hash128(key.data(), key.size() * sizeof(uint64_t));
  std::lock_guard<std::mutex> lock(mutex_);
  auto found = nodes_.find(hash);
  if (found == nodes_.end() || found->second.key != key) return nullptr;
  found->second.used = ++clock_;
  return found->second.entry;
}

EntryRef OpCache::insert(const KeyWords& key, EntryRef entry) {
  const Hash128 hash = hash128(key.data(), key.size() * sizeof(uint64_t));
  std::lock_guard<std::mutex> lock(mutex_);
  auto [place, fresh] = nodes_.try_emplace(hash);
  Node& node = place->second;
  if (!fresh && node.key == key) return node.entry;
  node = Node{key, hash, std::move(entry), ++clock_};
  EntryRef result = node.entry;
  if (nodes_.size() > capacity_) evict();
  return result;
}

// Drops the least recently used tenth at once, so that eviction costs little per insertion.
void OpCache::evict() {
  std::vector<std::pair<uint64_t, Hash128>> ages;
  ages.reserve(nodes_.size());
  for (const auto& [hash, node] : nodes_) ages.emplace_back(node.used, hash);
  const size_t drop = std::max<size_t>(1, ages.size() / 10);
  std::nth_element(ages.begin(), ages.begin() + static_cast<int64_t>(drop), ages.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < drop; ++i) nodes_.erase(ages[i].second);
  runtime::totals().evictions += static_cast<int64_t>(drop);
}

size_t OpCache::size() {
  std::lock_guard<std::mutex> lock(mutex_);
  return nodes_.size();
}

void OpCache::clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  nodes_.clear();
}

}  // namespace torch_tpu::aten
