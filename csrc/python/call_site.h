// The user's line: the innermost Python frame that is neither PyTorch's nor ours.
#pragma once

#include <string>
#include <vector>

#include "aten/memory_trace.h"

namespace torch_tpu::python {

// Directories (with a trailing slash) whose frames are skipped.
void set_internal_directories(std::string torch, std::string ours);

// "dir/model.py:12", relative to the directory of the first call where it lies inside; empty without a Python frame.
// Takes the GIL; never raises.
std::string call_site();

// The Python stack, innermost first, at most `limit` frames. Takes the GIL; never raises.
std::vector<aten::TraceFrame> call_stack(int64_t limit);

}  // namespace torch_tpu::python
