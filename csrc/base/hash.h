// Hashes: a fast 128-bit one for keys in memory, SHA-256 for names and checks on disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace torch_tpu {

struct Hash128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Hash128&) const = default;
};
Hash128 hash128(const void* data, size_t bytes);
std::string sha256_hex(std::string_view data);
// Empty when the file cannot be read.
std::string sha256_file_hex(const std::string& path);

}  // namespace torch_tpu
