// Switches of the whole process that change how ops run: CPU fallback and debug mode.
#pragma once

namespace torch_tpu::aten {

enum class FallbackMode {
  kWarn,   // run on the CPU, warn once per op
  kQuiet,  // run on the CPU
  kError,  // raise NotImplementedError
};
FallbackMode fallback_mode();
// Returns the previous mode.
FallbackMode set_fallback_mode(FallbackMode mode);

// Wait after every op and check index bounds at the call. Starts as TPU_LAUNCH_BLOCKING says.
bool debug_mode();
// Returns the previous value.
bool set_debug_mode(bool on);

}  // namespace torch_tpu::aten
