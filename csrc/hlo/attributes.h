// Spelling of StableHLO attributes as text (engine.md lists the ones that were tried on every engine).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"

namespace torch_tpu::hlo {

// "[1, 2]"
std::string bracketed(const std::vector<int64_t>& values);
// "array<i64: 1, 2>", or "array<i64>" when there are none.
std::string i64_array(const std::vector<int64_t>& values);
// "array<i1: true, false>"
std::string bool_array(const std::vector<bool>& values);
// "dense<[[1, 2], [0, 0]]> : tensor<2x2xi64>": one (low, high) pair per dimension.
std::string padding_pairs(const std::vector<int64_t>& low, const std::vector<int64_t>& high);
// "name = 3 : i64"
std::string i64_attribute(std::string_view name, int64_t value);
// "name = true"
std::string bool_attribute(std::string_view name, bool value);
// A double-quoted MLIR string.
std::string quoted(std::string_view text);

}  // namespace torch_tpu::hlo
