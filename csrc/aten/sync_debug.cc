#include "aten/sync_debug.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <string>

#include "runtime/hooks.h"

namespace torch_tpu::aten {
namespace {
std::atomic<SyncDebugMode> mode{SyncDebugMode::kDefault};
}

SyncDebugMode sync_debug_mode() { return mode.load(std::memory_order_relaxed); }
void set_sync_debug_mode(SyncDebugMode value) { mode.store(value); }

void note_host_read(const char* op) {
  const SyncDebugMode now = sync_debug_mode();
  if (now == SyncDebugMode::kDefault) return;
  const std::string site = runtime::hooks::call_site();
  const std::string where = site.empty() ? "" : " at " + site;
  TORCH_CHECK(now != SyncDebugMode::kError, op, ": called a synchronizing tpu operation", where);
  TORCH_WARN(op, ": called a synchronizing tpu operation", where);
}

}  // namespace torch_tpu::aten
