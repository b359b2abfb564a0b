// What was registered from the op table.
#pragma once

#include <string>
#include <vector>

#include "aten/plan.h"

namespace torch_tpu::aten {

// Registers every row with PyTorch, once. Called when the extension module is initialised.
void register_rows();

// Rows that could not be registered, with the reason. Empty in a good build; a test looks.
const std::vector<std::string>& row_problems();
// Every overload that a row serves.
const std::vector<std::string>& registered_ops();
// The plan behind a registered overload, or nullptr.
const Plan* find_plan(const std::string& name);

}  // namespace torch_tpu::aten
