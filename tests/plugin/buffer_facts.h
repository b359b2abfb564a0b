// What the plugin remembers about the engine's buffers: when each may be seen as ready, and whether it is poisoned.
#pragma once

#include <mutex>
#include <unordered_map>

#include "late_event.h"

namespace torch_tpu::test_plugin {

struct Facts {
  Clock::time_point due{};
  Failure poison;
};

class BufferFacts {
 public:
  void set(PJRT_Buffer* buffer, Facts facts) {
    std::lock_guard lock(mutex_);
    facts_[buffer] = std::move(facts);
  }
  Facts get(PJRT_Buffer* buffer) {
    std::lock_guard lock(mutex_);
    auto it = facts_.find(buffer);
    return it == facts_.end() ? Facts{} : it->second;
  }
  void forget(PJRT_Buffer* buffer) {
    std::lock_guard lock(mutex_);
    facts_.erase(buffer);
  }
  size_t count() {
    std::lock_guard lock(mutex_);
    return facts_.size();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<PJRT_Buffer*, Facts> facts_;
};

}  // namespace torch_tpu::test_plugin
