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

enum class EagerMode {
  kStrict,  // each op is submitted when it is called
  kFused,   // ops are recorded and run together (fuse/); the default
  kDebug,   // each op is waited for, its indices are checked at the call
};
// Starts as TORCH_TPU_EAGER_MODE, TPU_LAUNCH_BLOCKING and TPU_DEFER_AND_FUSE say.
EagerMode eager_mode();
// Returns the previous mode.
EagerMode set_eager_mode(EagerMode mode);
inline bool debug_mode() { return eager_mode() == EagerMode::kDebug; }

}  // namespace torch_tpu::aten
