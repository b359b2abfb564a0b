#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <string_view>

#include "base/env.h"

namespace torch_tpu::log {
namespace {

constexpr int kUnset = -1;
constexpr std::array<std::string_view, 5> kNames = {"off", "error", "warn", "info", "debug"};

std::atomic<int> current{kUnset};

void write_line(Level level, const std::string& text) {
  const std::string line = "torch_tpu " + std::string(kNames[static_cast<size_t>(level)]) + ": " + text + "\n";
  // A log that cannot be written has nobody to tell.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

Level read_environment() {
  const Result<std::string> text = env::one_of("TORCH_TPU_LOG");
  Level found = Level::kWarn;
  for (size_t i = 0; text.ok() && i < kNames.size(); ++i)
    if (text.value() == kNames[i]) found = static_cast<Level>(i);
  int expected = kUnset;
  const bool first = current.compare_exchange_strong(expected, static_cast<int>(found));
  if (first && !text.ok()) write_line(Level::kWarn, text.error().message);
  return first ? found : static_cast<Level>(expected);
}

}  // namespace

Level level() {
  const int known = current.load(std::memory_order_relaxed);
  return known == kUnset ? read_environment() : static_cast<Level>(known);
}

void set_level(Level level) { current.store(static_cast<int>(level), std::memory_order_relaxed); }

void write(Level level, const std::string& text) {
  if (level != Level::kOff && enabled(level)) write_line(level, text);
}

}  // namespace torch_tpu::log
