// Programs: text + options -> loaded executable, compiled at most once per process and, through the disk, per machine.
//
// The disk key is SHA-256 over the text, the encoded options, the environment the plugin reads (XLA_FLAGS,
// LIBTPU_INIT_ARGS), the plugin's content hash, CPU features, device kind and count. Files carry a header with length
// and checksum, verified before the plugin sees a byte: anything damaged, foreign or older is a miss.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pjrt/client.h"

namespace torch_tpu::store {

struct Program;
using ProgramRef = std::shared_ptr<const Program>;

enum class Profile { kFast, kFull };  // architecture.md: two compile profiles on the embedded engine

struct Request {
  std::string text;  // StableHLO module
  Profile profile = Profile::kFull;
  int device = 0;        // used where executables are not portable
  std::string op;        // for the log: "aten::add.Tensor" or a graph's name
  std::string detail;    // for the log: what the key looks like, e.g. "(f32[4], f32[4])"
  std::string why;       // for the log: "first call of this op", "argument 1 is f32[5], nearest known f32[4]"
  int64_t elements = 0;  // of the largest value: how much a better compile could save per run
  // The user's, beside ours: an unknown one is an error.
  std::map<std::string, pjrt::OptionValue> compile_options = {};
  bool cached_only = false;  // kUnavailable instead of a compile
  bool background = false;   // nobody waits: the caller may not take the GIL, so the log gets no line of the user's
};

// See note [Hot programs].
struct Upgrade {
  const pjrt::Client* client;
  Request request;
  ProgramRef program;
};

struct Program {
  pjrt::Executable executable;
  int64_t temporary_bytes = 0;
  double flops = -1;  // the plugin's estimate; -1 unknown
  bool runs_inline =
      false;        // XLA:CPU runs it inside Execute (flops < 1000) if its inputs are ready: runtime::needs_token
  std::string key;  // disk key, hex

  // Note [Hot programs]
  // A program of the fast profile that has run so often that compiling it in full would have paid is compiled again in
  // the background; from then on `current` gives the better one. Which run it is worth it at is estimated from the size
  // of its largest value.
  mutable std::atomic<int64_t> runs_left{INT64_MAX};    // INT64_MAX: not counted
  mutable std::atomic<const Program*> better{nullptr};  // owned by `upgrade`, set once
  std::unique_ptr<Upgrade> upgrade;                     // null: in the full profile already
};

// Returns the program, from memory, from disk, or by compiling. Concurrent calls with the same text wait for one
// compile. Safe from any thread; never holds a lock while compiling another key.
Result<ProgramRef> get(const pjrt::Client& client, const Request& request);

// The program to run now in place of `program`; counts the run. See note [Hot programs].
const Program& promote(const ProgramRef& program);  // slow path
inline const Program& current(const ProgramRef& program) {
  if (const Program* better = program->better.load(std::memory_order_acquire)) return *better;
  if (program->runs_left.load(std::memory_order_relaxed) == INT64_MAX ||
      program->runs_left.fetch_sub(1, std::memory_order_relaxed) != 1)
    return *program;
  return promote(program);
}

struct CompileRecord {
  std::string op, detail, why, site, key;
  double seconds = 0;
  bool from_disk = false, background = false;
  int64_t text_bytes = 0;
  double when = 0;  // seconds since the epoch
};
// Oldest first; bounded (the last 10,000).
std::vector<CompileRecord> compile_log();

// The disk store, for `python -m torch_tpu.cache`.
struct DiskEntry {
  std::string key, op;
  int64_t bytes = 0;
  double modified = 0;
};
std::string directory();  // "" when the store is off, e.g. because the folder is not the user's own
std::vector<DiskEntry> disk_entries();
int64_t clear_disk();  // returns the number of files removed

// The options sent with every compile, for the profile and platform.
pjrt::CompileOptions compile_options(const pjrt::Client& client, Profile profile, int device);
// These and the request's own.
pjrt::CompileOptions compile_options(const pjrt::Client& client, const Request& request);

}  // namespace torch_tpu::store
