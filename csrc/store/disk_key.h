// The name of a program on disk: everything that decides whether a stored executable is the right one.
#pragma once

#include <string>

#include "pjrt/client.h"

namespace torch_tpu::store {

// SHA-256 (hex) over the text, the encoded options, the environment the plugin reads, the plugin's content hash, CPU
// features, device kind and count.
std::string disk_key(const pjrt::Client& client, const std::string& text, const std::string& encoded_options);

// The instruction sets this machine's CPU reports, as the kernel names them; `path` is /proc/cpuinfo except in tests.
std::string cpu_features(const std::string& path = "/proc/cpuinfo");

}  // namespace torch_tpu::store
