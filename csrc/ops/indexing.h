// Building blocks of everything that reads or writes elements at computed positions: index checking, gathers and
// scatters along one dimension, and static gathers (positions known when the program is emitted).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/context.h"
#include "ops/table.h"

namespace torch_tpu::ops {

// What a scatter does where an element is hit (again).
enum class Combine { kReplace, kAdd, kMultiply, kMinimum, kMaximum };

// How an index outside of its dimension is treated once it was reported: a read is clamped to the nearest element, a
// write goes nowhere.
enum class Access { kRead, kWrite };

// Reports indices outside [0, size) (or [-size, size) when `wrap`, and then wraps negative ones) and returns them as
// i32 where `size` allows, else i64, made safe for `access`.
Value checked_index(Context& c, Value index, int64_t size, bool wrap, Access access);

// Rank 0 becomes rank 1, as ATen treats 0-d operands of dimension-wise ops.
Value at_least_1d(Builder& b, Value x);

// x[..., index, ...]: `index` (rank 1, safe) takes the place of dimension `dim`.
Value take_dim(Builder& b, Value x, int64_t dim, Value index);
// torch.gather: result[.., i, ..] = x[.., index[.., i, ..], ..]; `index` safe and of x's rank.
Value gather_dim(Builder& b, Value x, int64_t dim, Value index);
// x's elements in row-major order at `positions` (any shape, safe).
Value take_flat(Builder& b, Value x, Value positions);

// The opposite of take_dim: combines updates[..., k, ...] into x[..., index[k], ...], in the order of k.
Value scatter_rows(Builder& b, Value x, int64_t dim, Value index, Value updates, Combine combine);
// torch.scatter along `dim`; updates has index's shape, which may be smaller than x in the other dimensions.
Value scatter_dim(Builder& b, Value x, int64_t dim, Value index, Value updates, Combine combine);
// Combines updates[i] into element positions[i] of x in row-major order, for all i in row-major order.
Value scatter_flat(Builder& b, Value x, Value positions, Value updates, Combine combine);

// x[..., positions, ...] for positions known now: a slice, reverse or repetition where they form one, else a gather.
Value take_static(Builder& b, Value x, int64_t dim, const std::vector<int64_t>& positions);

// The dtype in which sums and products of `dtype` are accumulated by a scatter.
DType scatter_dtype(DType dtype, Combine combine);
// The element that leaves every other one unchanged.
Value combine_identity(Builder& b, const Type& type, Combine combine);
// "sum" / "add", "prod" / "multiply", "amax", "amin" -> Combine; "mean" is kAdd with a division by the caller.
Combine parse_combine(Context& c, const std::string& reduce);

// For an index that lists positions of an element among `count`: binary search (see order.cc). Returns for every value
// the number of leading elements of `sorted` (last dimension ascending) that are < value (or <= value when `right`), as
// i64. `sorted` has rank 1, or values' leading dimensions.
Value search_sorted(Builder& b, Value sorted, Value values, bool right);

// Rows of files that would otherwise grow too long; add_indexing_rows calls them.
void add_scatter_rows(Rows& rows);
void add_embedding_rows(Rows& rows);
void add_segment_rows(Rows& rows);

}  // namespace torch_tpu::ops
