// Files of shape rows besides shape.cc; add_shape_rows calls these.
#pragma once

#include "ops/table.h"

namespace torch_tpu::ops {

void add_window_rows(
    Rows& rows);  // shape_windows.cc: reflection and replication padding, unfold_backward, im2col, col2im
void add_distance_rows(Rows& rows);  // shape_distance.cc: cdist, pdist

}  // namespace torch_tpu::ops
