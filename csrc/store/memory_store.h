// Programs in memory: every live one can be found; the most recently asked-for ones are kept alive.
#pragma once

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <vector>

#include "base/hash.h"
#include "store/program_store.h"

namespace torch_tpu::store {

// A program of this process: its text and encoded options by hash and length.
struct MemoryKey {
  uint64_t low = 0, high = 0, bytes = 0;
  auto operator<=>(const MemoryKey&) const = default;
};
MemoryKey memory_key(const std::string& text, const std::string& encoded_options);

class MemoryStore {
 public:
  explicit MemoryStore(size_t kept) : kept_(kept) {}

  // nullptr if no such program is alive.
  ProgramRef find(const MemoryKey& key);
  // Keeps the program; returns how many were let go to make room.
  int64_t insert(const MemoryKey& key, const ProgramRef& program);
  // Lets go of every program that nobody else holds; returns how many.
  int64_t drop_unused();
  size_t size();

 private:
  struct Entry {
    std::weak_ptr<const Program> program;
    std::list<std::pair<MemoryKey, ProgramRef>>::iterator position;
    bool kept = false;
  };
  void keep(const MemoryKey& key, Entry& entry, const ProgramRef& program, std::vector<ProgramRef>& dropped);

  const size_t kept_;
  std::mutex mutex_;
  std::map<MemoryKey, Entry> entries_;                  // also programs that only others keep alive
  std::list<std::pair<MemoryKey, ProgramRef>> recent_;  // most recently used first
};

}  // namespace torch_tpu::store
