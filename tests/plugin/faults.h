// Faults that a test orders: "the n-th call from now fails".
#pragma once

#include <string>

#include "error.h"

namespace torch_tpu::test_plugin {

enum class Fault {
  kExecute,        // Execute fails and leaves its arguments alone
  kExecuteAfter,   // Execute fails after donated arguments are consumed
  kOutput,         // an output buffer carries an error, as do all that are computed from it
  kUpload,         // BufferFromHostBuffer fails
  kDownload,       // ToHostBuffer fails
  kCompile,        // Compile fails
  kCompileRegion,  // Compile of a module whose functions call one another fails: a region of recorded ops
};

// Counts one call of this kind; the failure that was ordered for it, if any.
Failure next_fault(Fault fault);
// The n-th of these calls from now (1: the next) and the `count` - 1 after it fail with `code`. n = 0 cancels.
void order_fault(Fault fault, int n, int count, PJRT_Error_Code code);
void cancel_faults();
// Calls of this kind so far.
long calls(Fault fault);
// Orders every "kind:n:count:code" of a comma-separated list; false on a word it does not know.
bool order_faults(const std::string& list);

}  // namespace torch_tpu::test_plugin
