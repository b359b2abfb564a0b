// Content hashes of large files, remembered between processes.
#pragma once

#include <string>

namespace torch_tpu::pjrt {

// SHA-256 (hex) of a file. Reading a plugin of hundreds of megabytes would cost every process half a second, so the
// result is kept in the cache folder, keyed by path, size, inode and times of change, in a file that only its owner may
// write. "" if the file cannot be read.
std::string memoized_file_hash(const std::string& path);

}  // namespace torch_tpu::pjrt
