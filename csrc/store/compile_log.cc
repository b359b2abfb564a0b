#include "store/compile_log.h"

#include <deque>
#include <mutex>

#include "runtime/engine.h"

namespace torch_tpu::store {
namespace {

constexpr size_t kKept = 10'000;

struct Log {
  std::mutex mutex;
  std::deque<CompileRecord> records;
};

Log& log() {
  static Log* const instance = new Log;
  return *instance;
}

}  // namespace

void append_to_log(CompileRecord record) {
  Log& l = log();
  std::lock_guard lock(l.mutex);
  l.records.push_back(std::move(record));
  if (l.records.size() > kKept) l.records.pop_front();
}

std::vector<CompileRecord> compile_log() {
  if (runtime::Engine::in_bad_fork()) return {};
  Log& l = log();
  std::lock_guard lock(l.mutex);
  return {l.records.begin(), l.records.end()};
}

}  // namespace torch_tpu::store
