#include "aten/modes.h"

#include <atomic>

#include "aten/storage.h"
#include "base/env.h"

namespace torch_tpu::aten {
namespace {

std::atomic<FallbackMode>& fallback() {
  static std::atomic<FallbackMode> value = [] {
    const std::string text = take(env::one_of("TORCH_TPU_FALLBACK"));
    return text == "quiet" ? FallbackMode::kQuiet : text == "error" ? FallbackMode::kError : FallbackMode::kWarn;
  }();
  return value;
}

std::atomic<bool>& debug() {
  static std::atomic<bool> value =
      take(env::flag("TPU_LAUNCH_BLOCKING")) || take(env::one_of("TORCH_TPU_EAGER_MODE")) == "debug";
  return value;
}

}  // namespace

FallbackMode fallback_mode() { return fallback().load(std::memory_order_relaxed); }
FallbackMode set_fallback_mode(FallbackMode mode) { return fallback().exchange(mode); }
bool debug_mode() { return debug().load(std::memory_order_relaxed); }
bool set_debug_mode(bool on) { return debug().exchange(on); }

}  // namespace torch_tpu::aten
