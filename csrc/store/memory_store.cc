#include "store/memory_store.h"

namespace torch_tpu::store {

MemoryKey memory_key(const std::string& text, const std::string& encoded_options) {
  std::string all;
  all.reserve(text.size() + encoded_options.size());
  all += encoded_options;
  all += text;
  const Hash128 hash = hash128(all.data(), all.size());
  return {hash.low, hash.high, encoded_options.size() << 40 | all.size()};
}

void MemoryStore::keep(const MemoryKey& key, Entry& entry, const ProgramRef& program,
                       std::vector<ProgramRef>& dropped) {
  if (entry.kept) {
    recent_.splice(recent_.begin(), recent_, entry.position);
  } else {
    recent_.emplace_front(key, program);
    entry.position = recent_.begin();
    entry.kept = true;
  }
  while (recent_.size() > kept_) {
    auto& [oldest, last] = recent_.back();
    auto it = entries_.find(oldest);
    it->second.kept = false;
    // Held by an op's cache entry or running: it stays findable as long as that lasts.
    if (last.use_count() == 1) entries_.erase(it);
    dropped.push_back(std::move(last));
    recent_.pop_back();
  }
}

ProgramRef MemoryStore::find(const MemoryKey& key) {
  std::vector<ProgramRef> dropped;  // destroyed after the lock: an executable's destructor is slow
  std::lock_guard lock(mutex_);
  auto it = entries_.find(key);
  if (it == entries_.end()) return nullptr;
  ProgramRef program = it->second.program.lock();
  if (!program) {
    entries_.erase(it);
    return nullptr;
  }
  keep(key, it->second, program, dropped);
  return program;
}

int64_t MemoryStore::insert(const MemoryKey& key, const ProgramRef& program) {
  std::vector<ProgramRef> dropped;
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[key];
  if (entry.kept && entry.position->second != program) {
    dropped.push_back(std::exchange(entry.position->second, program));
  }
  entry.program = program;
  keep(key, entry, program, dropped);
  // Entries of programs that died elsewhere are found by chance only, so now and then all are looked at.
  if (entries_.size() > 2 * kept_ + 64)
    std::erase_if(entries_, [](const auto& item) { return !item.second.kept && item.second.program.expired(); });
  return static_cast<int64_t>(dropped.size());
}

int64_t MemoryStore::drop_unused() {
  std::vector<ProgramRef> dropped;
  std::lock_guard lock(mutex_);
  for (auto it = recent_.begin(); it != recent_.end();) {
    if (it->second.use_count() > 1) {
      ++it;
      continue;
    }
    entries_.erase(it->first);
    dropped.push_back(std::move(it->second));
    it = recent_.erase(it);
  }
  return static_cast<int64_t>(dropped.size());
}

size_t MemoryStore::size() {
  std::lock_guard lock(mutex_);
  return recent_.size();
}

}  // namespace torch_tpu::store
