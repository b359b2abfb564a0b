// The registry of environment variables: name, type, default, stage and one line of documentation for each.
// docs/env.md is generated from it; unknown TORCH_TPU_* variables are ignored with one debug line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace torch_tpu::env {

struct Variable {
  const char* name;
  const char* type;      // "flag", "int", "bytes", "string", "path", "one of a|b"
  const char* fallback;  // the default, as text
  const char* stage;     // "public", "experimental", "private"
  const char* doc;
};

const std::vector<Variable>& variables();

// The value as set, or the default. Only registered names may be asked for. A value that does not parse gives
// kValue: `TORCH_TPU_NUM_DEVICES: expected an integer of at least 1, got <many>`.
std::string string(const char* name);
Result<bool> flag(const char* name);  // 0/1, true/false, yes/no, on/off
Result<int64_t> integer(const char* name, int64_t minimum, int64_t maximum);
Result<int64_t> bytes(const char* name);       // "16GiB", "512MB", "1e9", plain number; -1 when empty (no limit)
Result<std::string> one_of(const char* name);  // the choices are read from the variable's type

// Names every set TORCH_TPU_* variable that is not registered in one debug line.
void log_unknown();

}  // namespace torch_tpu::env
