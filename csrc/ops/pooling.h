// Facts shared by the pooling rules: the spatial geometry of an op and the {value, position} maximum.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/context.h"
#include "ops/table.h"

namespace torch_tpu::ops {

// Sliding windows over the last `dims()` dimensions, one entry per dimension.
struct PoolWindow {
  std::vector<int64_t> kernel, stride, padding, dilation;
  int64_t dims() const { return static_cast<int64_t>(kernel.size()); }
};

// Expands attributes given once for all dimensions; an empty stride means the kernel's size.
PoolWindow pool_window(int64_t dims, std::vector<int64_t> kernel, std::vector<int64_t> stride,
                       std::vector<int64_t> padding, std::vector<int64_t> dilation);

// Row-major position of every element among the last `dims` dimensions (i32 or i64), in x's shape.
Value spatial_positions(Builder& b, const Shape& shape, int64_t dims);

// Keeps the larger of {value, position} and {value, position}: the earlier one on ties, a NaN always; a negative
// position stands for padding.
Values larger(Builder& b, Value value, Value position, Value other, Value other_position);

// Scatters grad to the spatial positions it came from (max pooling's general backward, max_unpool).
Value scatter_spatial(Builder& b, Value grad, Value positions, const Type& out, int64_t dims, bool add);

void add_adaptive_pooling_rows(Rows& rows);    // pooling_adaptive.cc
void add_average_pooling_rows(Rows& rows);     // pooling_average.cc
void add_fractional_pooling_rows(Rows& rows);  // pooling_fractional.cc: fractional_max_pool and max_unpool

}  // namespace torch_tpu::ops
