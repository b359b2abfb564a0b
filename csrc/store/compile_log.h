// The log of compiles, read by torch.tpu.compile_log(): the last 10,000, oldest first.
#pragma once

#include <vector>

#include "store/program_store.h"

namespace torch_tpu::store {

void append_to_log(CompileRecord record);

}  // namespace torch_tpu::store
