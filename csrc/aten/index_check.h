// When an index out of range is reported (TORCH_TPU_INDEX_CHECK).
#pragma once

namespace torch_tpu::aten {

enum class IndexCheck : int {
  kOff,   // never: indices are clamped, updates out of range are dropped
  kLate,  // at the next host read or synchronisation, through a word that the program returns
  kCall,  // at the call, which waits for the program
};

// kCall in debug mode, whatever was set.
IndexCheck index_check();
// What was set, whether or not debug mode overrides it just now: what a block must put back.
IndexCheck index_check_setting();
// Returns the previous setting.
IndexCheck set_index_check(IndexCheck mode);

}  // namespace torch_tpu::aten
