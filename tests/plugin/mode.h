// How the plugin behaves, read from TORCH_TPU_TEST_PLUGIN_MODE when it is loaded.
#pragma once

#include <optional>
#include <string>

namespace torch_tpu::test_plugin {

struct Mode {
  bool host_pointers = true;  // buffers can be read in place
  bool zero_copy = true;      // host memory can be aliased
  bool portable = true;       // executables may be compiled without devices
  double late_ms = 0;         // completions are up to this late
  std::string platform;       // "" leaves the engine's own name
};

// Words, comma-separated: no_pointer, no_zero_copy, no_portable, late=MS, platform=NAME; "tpu" stands for all of them
// with late=2 and platform=tpu. Nothing if a word is unknown.
std::optional<Mode> parse_mode(const std::string& words);

}  // namespace torch_tpu::test_plugin
