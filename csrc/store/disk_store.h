// Executables on disk: one file per program, checked before a byte of it reaches the plugin.
//
// Note [Files of the disk store]
// `<key>.program` = a fixed header {magic, format, lengths, key, SHA-256 of the rest}, a few lines of facts
// ("op=aten::add.Tensor"), the serialised executable. Written to a temporary file and renamed, so a reader sees all of
// it or none. A file's modification time is the time of its last use. `<key>.lock` is held while one process compiles.
// Anything that goes wrong is a miss: the store never makes a compile fail.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "store/program_store.h"

namespace torch_tpu::store {

using Facts = std::map<std::string, std::string>;

struct StoredProgram {
  Facts facts;
  std::string blob;
};

// Held while a process compiles one key. Released by the destructor.
class KeyLock {
 public:
  KeyLock() = default;
  KeyLock(int file, std::string path) : file_(file), path_(std::move(path)) {}
  KeyLock(KeyLock&& other) noexcept;
  KeyLock& operator=(KeyLock&&) = delete;
  ~KeyLock();
  explicit operator bool() const { return file_ >= 0; }

 private:
  int file_ = -1;
  std::string path_;
};

class DiskStore {
 public:
  // `limit` in bytes, -1 for none. Creates the folder (0700). The store is off when the folder cannot be made, is not
  // the user's own, or can be written by others; `why_off()` then says so.
  DiskStore(std::string directory, int64_t limit);

  bool on() const { return !directory_.empty(); }
  const std::string& directory() const { return directory_; }
  const std::string& why_off() const { return why_off_; }

  // The program, or nothing: absent, damaged, foreign, of another format. Damaged files are removed.
  std::optional<StoredProgram> load(const std::string& key);
  // False when nothing was stored (full or read-only disk).
  bool save(const std::string& key, const StoredProgram& program);
  void remove(const std::string& key);
  // Waits at most `seconds` for other processes; an empty lock when that was not enough or the disk refuses.
  KeyLock lock(const std::string& key, double seconds);

  std::vector<DiskEntry> entries() const;
  // Removes every program, lock and left-over; returns the number of programs removed.
  int64_t clear();
  // Measures the folder; when it nears the limit, removes the programs unused for longest until 9/10 of it are left.
  void enforce_limit();

 private:
  std::string path(const std::string& key) const { return directory_ + "/" + key + ".program"; }

  std::string directory_, why_off_;
  int64_t limit_ = -1;
  std::mutex mutex_;
  int64_t unseen_ = 0;  // guarded by mutex_: bytes written since the folder was last measured
};

// Where the store belongs: TORCH_TPU_CACHE_DIR, else XDG_CACHE_HOME/torch_tpu, else ~/.cache/torch_tpu; "" when it is
// turned off (TORCH_TPU_CACHE=0, TORCH_TPU_INTERNAL_TIER2_COMPILATION_CACHE=disabled) or there is no home.
std::string configured_directory();
// The process's store, made on first use.
DiskStore& disk_store();

}  // namespace torch_tpu::store
