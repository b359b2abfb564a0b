#include "aten/modes.h"

#include <atomic>

#include "aten/storage.h"
#include "base/env.h"
#include "fuse/region.h"

namespace torch_tpu::aten {
namespace {

std::atomic<FallbackMode>& fallback() {
  static std::atomic<FallbackMode> value = [] {
    const std::string text = take(env::one_of("TORCH_TPU_FALLBACK"));
    return text == "quiet" ? FallbackMode::kQuiet : text == "error" ? FallbackMode::kError : FallbackMode::kWarn;
  }();
  return value;
}

EagerMode initial_mode() {
  if (take(env::flag("TPU_LAUNCH_BLOCKING"))) return EagerMode::kDebug;
  if (take(env::flag("TPU_DEFER_AND_FUSE"))) return EagerMode::kFused;
  const std::string text = take(env::one_of("TORCH_TPU_EAGER_MODE"));
  return text == "debug" ? EagerMode::kDebug : text == "strict" ? EagerMode::kStrict : EagerMode::kFused;
}

std::atomic<EagerMode>& mode() {
  static std::atomic<EagerMode> value = [] {
    const EagerMode initial = initial_mode();
    if (initial == EagerMode::kFused) fuse::set_recording(true);
    return initial;
  }();
  return value;
}

}  // namespace

FallbackMode fallback_mode() { return fallback().load(std::memory_order_relaxed); }
FallbackMode set_fallback_mode(FallbackMode mode) { return fallback().exchange(mode); }
EagerMode eager_mode() { return mode().load(std::memory_order_relaxed); }
EagerMode set_eager_mode(EagerMode wanted) {
  const EagerMode before = mode().exchange(wanted);
  if (before != wanted) fuse::set_recording(wanted == EagerMode::kFused);
  return before;
}

}  // namespace torch_tpu::aten
