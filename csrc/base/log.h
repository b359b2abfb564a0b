// A small levelled log to stderr. TORCH_TPU_LOG=off|error|warn|info|debug chooses what is shown; "warn" by default.
#pragma once

#include <string>

namespace torch_tpu::log {

enum class Level { kOff, kError, kWarn, kInfo, kDebug };

// Read from the environment on first use; an unknown word counts as "warn" and is reported once.
Level level();
void set_level(Level level);
inline bool enabled(Level wanted) { return wanted <= level(); }

// One line, written with one system call so that lines of several threads and processes do not mix.
void write(Level level, const std::string& text);

inline void error(const std::string& text) { write(Level::kError, text); }
inline void warn(const std::string& text) { write(Level::kWarn, text); }
inline void info(const std::string& text) { write(Level::kInfo, text); }
inline void debug(const std::string& text) { write(Level::kDebug, text); }

}  // namespace torch_tpu::log
