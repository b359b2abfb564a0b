#include "store/disk_key.h"

#include <cstdlib>
#include <fstream>
#include <string_view>

#include "base/hash.h"

namespace torch_tpu::store {
namespace {

// Length-prefixed, so that no two different lists of parts give one string.
void append(std::string& all, std::string_view part) {
  all += std::to_string(part.size());
  all += ':';
  all += part;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::string cpu_features(const std::string& path) {
  std::ifstream file(path);
  std::string line, found;
  while (std::getline(file, line)) {
    // x86 calls the line "flags", ARM "Features"; all processors of a machine are taken to be alike.
    const bool wanted = line.starts_with("flags") || line.starts_with("Features") || line.starts_with("model name") ||
                        line.starts_with("CPU part");
    if (wanted) found += line + '\n';
    if (line.empty() && !found.empty()) break;
  }
  return found;
}

std::string disk_key(const pjrt::Client& client, const std::string& text, const std::string& encoded_options) {
  static const std::string* const features = new std::string(cpu_features());
  std::string all;
  all.reserve(text.size() + encoded_options.size() + features->size() + 512);
  append(all, "torch_tpu program 1");
  append(all, encoded_options);
  append(all, environment("XLA_FLAGS"));
  append(all, environment("LIBTPU_INIT_ARGS"));
  append(all, client.plugin().content_hash());
  append(all, *features);
  append(all, client.platform_name());
  append(all, client.device_kind(0));
  append(all, std::to_string(client.device_count()));
  append(all, text);
  return sha256_hex(all);
}

}  // namespace torch_tpu::store
