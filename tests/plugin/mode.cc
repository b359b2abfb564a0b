#include "mode.h"

#include <cstdlib>
#include <sstream>

namespace torch_tpu::test_plugin {

std::optional<Mode> parse_mode(const std::string& words) {
  Mode mode;
  std::istringstream items(words);
  for (std::string word; std::getline(items, word, ',');) {
    if (word == "tpu") {
      mode = {.host_pointers = false, .zero_copy = false, .portable = false, .late_ms = 2, .platform = "tpu"};
    } else if (word == "no_pointer") {
      mode.host_pointers = false;
    } else if (word == "no_zero_copy") {
      mode.zero_copy = false;
    } else if (word == "no_portable") {
      mode.portable = false;
    } else if (word.starts_with("late=")) {
      char* end = nullptr;
      mode.late_ms = std::strtod(word.c_str() + 5, &end);
      if (end == word.c_str() + 5 || *end != '\0' || !(mode.late_ms >= 0)) return std::nullopt;
    } else if (word.starts_with("platform=")) {
      mode.platform = word.substr(9);
    } else if (!word.empty()) {
      return std::nullopt;
    }
  }
  return mode;
}

}  // namespace torch_tpu::test_plugin
