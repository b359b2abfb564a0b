#include "base/env.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/log.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): not in every C++ mode's <unistd.h>

namespace torch_tpu::env {
namespace {

Error bad(const char* name, const std::string& expected, const std::string& got) {
  return Error{ErrorCode::kValue, std::string(name) + ": expected " + expected + ", got <" + got + ">"};
}

const Variable* find(std::string_view name) {
  for (const Variable& variable : variables())
    if (name == variable.name) return &variable;
  return nullptr;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// The factor of "GiB", "MB", ...; 0 for a word that is none.
double unit_factor(const std::string& unit) {
  if (unit.empty() || unit == "b") return 1;
  static constexpr std::string_view kPrefixes = "kmgt";
  const size_t power = kPrefixes.find(unit[0]);
  if (power == std::string_view::npos) return 0;
  const std::string rest = unit.substr(1);
  // A bare "G" means GiB, as memory sizes are usually meant.
  if (rest.empty() || rest == "ib" || rest == "i") return std::pow(1024.0, static_cast<double>(power) + 1);
  return rest == "b" ? std::pow(1000.0, static_cast<double>(power) + 1) : 0;
}

std::string range_text(int64_t minimum, int64_t maximum) {
  std::string text = "an integer";
  if (minimum != INT64_MIN && maximum != INT64_MAX)
    return text + " from " + std::to_string(minimum) + " to " + std::to_string(maximum);
  if (minimum != INT64_MIN) text += " of at least " + std::to_string(minimum);
  if (maximum != INT64_MAX) text += " of at most " + std::to_string(maximum);
  return text;
}

}  // namespace

const std::vector<Variable>& variables() {
  static const auto* const table = new std::vector<Variable>{
      {"TORCH_TPU_PJRT_PLUGIN", "path", "", "public",
       "The PJRT plugin to load, instead of libtpu or the embedded engine."},
      {"TORCH_TPU_EMBEDDED", "flag", "1", "public",
       "0 forbids the embedded engine: without a TPU the device is then unavailable."},
      {"TORCH_TPU_FORCE", "flag", "0", "public",
       "1 registers the device although this machine has a CUDA device and no TPU."},
      {"TORCH_TPU_NUM_DEVICES", "int", "1", "public", "How many devices the embedded engine shows in one process."},
      {"TORCH_TPU_THREADS", "int", "0", "public",
       "Threads of the embedded engine's pools; 0 leaves the engine's own choice."},
      {"TORCH_TPU_MEMORY_LIMIT", "bytes", "", "public",
       "Device memory a process may use per device (\"16GiB\"); simulates a chip's memory on the embedded engine."},
      {"TORCH_TPU_CACHE", "flag", "1", "public", "0 turns the disk store of compiled programs off."},
      {"TORCH_TPU_CACHE_DIR", "path", "", "public",
       "Folder of the disk store; otherwise XDG_CACHE_HOME/torch_tpu, else ~/.cache/torch_tpu."},
      {"TORCH_TPU_CACHE_SIZE", "bytes", "2GiB", "public",
       "Size limit of the disk store; the programs unused for longest are removed first."},
      {"TORCH_TPU_PROGRAM_CACHE_ENTRIES", "int", "4096", "public", "Compiled programs kept in memory."},
      {"TORCH_TPU_INTERNAL_TIER2_COMPILATION_CACHE", "string", "", "private",
       "\"disabled\" turns the disk store off (another spelling of TORCH_TPU_CACHE=0)."},
      {"TORCH_TPU_COMPILE_PROFILE", "one of auto|fast|full", "auto", "experimental",
       "Compile effort on the embedded engine: \"fast\" compiles sooner, \"full\" runs faster, \"auto\" chooses by "
       "size."},
      {"TORCH_TPU_FUSE_AFTER", "int", "0", "experimental",
       "Runs after which a recorded region of ops is compiled as one program; 0 decides by what it is expected to "
       "save."},
      {"TORCH_TPU_INDEX_CHECK", "one of off|late|call", "late", "public",
       "When an index out of range raises: never, at the next host read, or at the call."},
      {"TORCH_TPU_FALLBACK", "one of warn|quiet|error", "warn", "public",
       "What an op without a rule does: run on the CPU with one warning, silently, or raise."},
      {"TORCH_TPU_EAGER_MODE", "one of fused|strict|debug", "fused", "public",
       "\"fused\" records ops and runs those that keep returning as one program; \"strict\" submits every op when it "
       "is "
       "called; \"debug\" waits for every op and checks indices at the call, as TPU_LAUNCH_BLOCKING=1 does."},
      {"TPU_LAUNCH_BLOCKING", "flag", "0", "public",
       "1 waits for every op, so that errors are raised where they happen."},
      {"TPU_DEFER_AND_FUSE", "flag", "0", "public", "1 is TORCH_TPU_EAGER_MODE=fused."},
      {"TORCH_TPU_LOG", "one of off|error|warn|info|debug", "warn", "public", "How much is logged to stderr."},
  };
  return *table;
}

std::string string(const char* name) {
  const Variable* variable = find(name);
  assert(variable && "unregistered environment variable");
  const char* value = std::getenv(name);
  if (value && *value) return value;
  return variable ? variable->fallback : "";
}

Result<bool> flag(const char* name) {
  const std::string got = string(name), text = lower(trimmed(got));
  if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
  if (text == "0" || text == "false" || text == "no" || text == "off") return false;
  return bad(name, "0 or 1", got);
}

Result<int64_t> integer(const char* name, int64_t minimum, int64_t maximum) {
  const std::string got = string(name), text = trimmed(got);
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  const bool parsed = !text.empty() && *end == '\0' && errno == 0;
  if (!parsed || value < minimum || value > maximum) return bad(name, range_text(minimum, maximum), got);
  return static_cast<int64_t>(value);
}

Result<int64_t> bytes(const char* name) {
  const std::string got = string(name), text = lower(trimmed(got));
  if (text.empty()) return int64_t{-1};
  const std::string expected = "a number of bytes such as 16GiB or 512MB";
  // strtod would also take "inf", "nan" and hexadecimal.
  if (!std::isdigit(static_cast<unsigned char>(text[0])) && text[0] != '.') return bad(name, expected, got);
  if (text.size() > 1 && text[1] == 'x') return bad(name, expected, got);
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const double value = number * unit_factor(trimmed(end));
  if (unit_factor(trimmed(end)) == 0 || !(value < 9.2e18)) return bad(name, expected, got);
  return static_cast<int64_t>(value);
}

Result<std::string> one_of(const char* name) {
  const Variable* variable = find(name);
  assert(variable && std::string_view(variable->type).starts_with("one of "));
  const std::string got = string(name), text = lower(trimmed(got));
  std::string choices = variable ? variable->type + std::strlen("one of ") : "";
  for (size_t begin = 0; begin <= choices.size();) {
    const size_t end = std::min(choices.find('|', begin), choices.size());
    if (text == choices.substr(begin, end - begin)) return text;
    begin = end + 1;
  }
  std::replace(choices.begin(), choices.end(), '|', ' ');
  return bad(name, "one of " + choices, got);
}

void log_unknown() {
  if (!log::enabled(log::Level::kDebug)) return;
  std::string unknown;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    // The test plugin has its own variables.
    if (!name.starts_with("TORCH_TPU_") || name.starts_with("TORCH_TPU_TEST_") || find(name)) continue;
    unknown += (unknown.empty() ? "" : ", ") + std::string(name);
  }
  if (!unknown.empty()) log::debug("unknown environment variables are ignored: " + unknown);
}

}  // namespace torch_tpu::env
