#include "runtime/statistics.h"

#include <mutex>

#include "runtime/engine.h"

namespace torch_tpu::runtime {
namespace {

struct Fallbacks {
  std::mutex mutex;
  std::map<std::string, int64_t> by_op;
};

Fallbacks& fallbacks() {
  static Fallbacks* const instance = new Fallbacks;
  return *instance;
}

}  // namespace

Totals& totals() {
  static Totals* const instance = new Totals;
  return *instance;
}

void count_fallback(const std::string& op) {
  totals().fallbacks.fetch_add(1, std::memory_order_relaxed);
  if (Engine::in_bad_fork()) return;
  Fallbacks& f = fallbacks();
  std::lock_guard lock(f.mutex);
  ++f.by_op[op];
}

std::map<std::string, int64_t> fallbacks_by_op() {
  if (Engine::in_bad_fork()) return {};
  Fallbacks& f = fallbacks();
  std::lock_guard lock(f.mutex);
  return f.by_op;
}

}  // namespace torch_tpu::runtime
