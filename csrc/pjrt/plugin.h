// A loaded PJRT plugin: which library, its function table, its errors. Plugins are never unloaded.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>

#include "base/error.h"

struct PJRT_Api;
struct PJRT_Error;

namespace torch_tpu::pjrt {

enum class PlatformKind { kCpu, kTpu };

// Where a plugin was found, before anything is loaded.
struct PluginChoice {
  std::string path;    // the shared library
  std::string source;  // "TORCH_TPU_PJRT_PLUGIN", "libtpu", "xla-cpu-pjrt"
};

// True if this machine has a TPU: a PCI device of vendor 0x1ae0 with a vfio or accel node. Opens no device.
// `root` is "/" except in tests.
bool tpu_present(const std::string& root = "/");

// TORCH_TPU_PJRT_PLUGIN, then libtpu when a TPU is present, then the embedded engine (unless TORCH_TPU_EMBEDDED=0).
// `libtpu` and `embedded` are the paths the Python package found ("" if not installed). kUnavailable names the pip
// command otherwise. Loads nothing.
Result<PluginChoice> choose_plugin(const std::string& libtpu, const std::string& embedded);

class Plugin {
 public:
  // dlopen, GetPjrtApi, version check, Plugin_Initialize. A second call with the same path returns the same object.
  static Result<const Plugin*> load(const PluginChoice& choice);

  const PJRT_Api* api() const { return api_; }
  const std::string& path() const { return choice_.path; }
  const std::string& source() const { return choice_.source; }
  int api_minor() const;
  // SHA-256 of the library file, hex; computed on first use (disk keys need it), cached by (path, size, mtime).
  // "" if the file has become unreadable.
  const std::string& content_hash() const;
  // True if the table holds a non-null entry at this byte offset.
  bool has(size_t offset) const;
  // Turns a PJRT_Error (may be null) into a Status and destroys it.
  Status status(PJRT_Error* error) const;
  // Bytes of zeros to put behind an argument struct: plugins newer than our header may read fields that it lacks.
  size_t argument_tail() const { return tail_; }

 private:
  Plugin() = default;
  Status initialize();

  PluginChoice choice_;
  const PJRT_Api* api_ = nullptr;
  size_t tail_ = 0;
  mutable std::once_flag hash_once_;
  mutable std::string hash_;
};

}  // namespace torch_tpu::pjrt
