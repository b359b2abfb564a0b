// Programs: text + options -> loaded executable, compiled at most once per process and, through the disk, per machine.
//
// The disk key is SHA-256 over the text, the encoded options, the environment the plugin reads (XLA_FLAGS,
// LIBTPU_INIT_ARGS), the plugin's content hash, CPU features, device kind and count. Files carry a header with length
// and checksum, verified before the plugin sees a byte: anything damaged, foreign or older is a miss.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pjrt/client.h"

namespace torch_tpu::store {

struct Program {
  pjrt::Executable executable;
  int64_t temporary_bytes = 0;
  double flops = -1;  // the plugin's estimate; -1 unknown
  bool runs_inline =
      false;        // XLA:CPU runs it inside Execute (flops < 1000) if its inputs are ready: runtime::needs_token
  std::string key;  // disk key, hex
};
using ProgramRef = std::shared_ptr<const Program>;

enum class Profile { kFast, kFull };  // architecture.md: two compile profiles on the embedded engine

struct Request {
  std::string text;  // StableHLO module
  Profile profile = Profile::kFull;
  int device = 0;      // used where executables are not portable
  std::string op;      // for the log: "aten::add.Tensor" or a graph's name
  std::string detail;  // for the log: what the key looks like, e.g. "(f32[4], f32[4])"
  std::string why;     // for the log: "first call of this op", "argument 1 is f32[5], nearest known f32[4]"
};

// Returns the program, from memory, from disk, or by compiling. Concurrent calls with the same text wait for one
// compile. Safe from any thread; never holds a lock while compiling another key.
Result<ProgramRef> get(const pjrt::Client& client, const Request& request);

struct CompileRecord {
  std::string op, detail, why, site, key;
  double seconds = 0;
  bool from_disk = false;
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

}  // namespace torch_tpu::store
