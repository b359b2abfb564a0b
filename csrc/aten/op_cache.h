// Keys to entries: the table that a hit goes through. Bounded, least recently used first out.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <unordered_map>

#include "aten/program.h"
#include "base/hash.h"

namespace torch_tpu::aten {

class OpCache {
 public:
  static OpCache& instance();

  // The entry for a key, or null. The key's bytes are compared, not only their hash.
  EntryRef find(const KeyWords& key);
  // Stores an entry; when another thread was first, returns that one.
  EntryRef insert(const KeyWords& key, EntryRef entry);
  size_t size();
  void clear();

 private:
  struct Node {
    KeyWords key;
    Hash128 hash;
    EntryRef entry;
    uint64_t used = 0;
  };
  struct HashOf {
    size_t operator()(const Hash128& h) const { return h.low; }
  };
  OpCache();
  void evict();

  std::mutex mutex_;
  std::unordered_map<Hash128, Node, HashOf> nodes_;
  uint64_t clock_ = 0;
  size_t capacity_;
};

}  // namespace torch_tpu::aten
