// The user's line: the innermost Python frame that is neither PyTorch's nor ours.
#pragma once

#include <string>
#include <vector>

namespace torch_tpu::python {

// Directories (with a trailing slash) whose frames are skipped.
void set_internal_directories(std::string torch, std::string ours);

// "dir/model.py:12", relative to the working directory where it lies inside; empty without a Python frame. Takes the
// GIL; never raises.
std::string call_site();

// The Python stack, innermost first, as (file, line, function), at most `limit` frames. Takes the GIL.
struct Frame {
  std::string file, function;
  int line = 0;
};
std::vector<Frame> call_stack(size_t limit);

}  // namespace torch_tpu::python
