#include "aten/index_check.h"

#include <atomic>

#include "aten/modes.h"
#include "aten/storage.h"
#include "base/env.h"

namespace torch_tpu::aten {
namespace {

std::atomic<IndexCheck>& mode() {
  static std::atomic<IndexCheck> value = [] {
    const std::string text = take(env::one_of("TORCH_TPU_INDEX_CHECK"));
    return text == "off" ? IndexCheck::kOff : text == "call" ? IndexCheck::kCall : IndexCheck::kLate;
  }();
  return value;
}

}  // namespace

IndexCheck index_check() { return debug_mode() ? IndexCheck::kCall : index_check_setting(); }
IndexCheck index_check_setting() { return mode().load(std::memory_order_relaxed); }
IndexCheck set_index_check(IndexCheck value) { return mode().exchange(value); }

}  // namespace torch_tpu::aten
