// Files of resampling rows besides resampling.cc; add_resampling_rows calls these.
#pragma once

#include "ops/table.h"

namespace torch_tpu::ops {

void add_grid_sampler_rows(Rows& rows);  // resampling_grid.cc

}  // namespace torch_tpu::ops
