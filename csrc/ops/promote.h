// PyTorch's type promotion and broadcasting over typed values (torch.result_type, torch.broadcast_shapes).
#pragma once

#include "ops/context.h"

namespace torch_tpu::ops {

// One operand's part in promotion: its dtype, and whether it is a dimensioned tensor, a 0-d tensor or a number.
struct Promotable {
  DType dtype;
  bool zero_dim;
  bool wrapped;
};

// torch.promote_types.
DType promote_types(DType a, DType b);
// torch.result_type over any number of operands (PyTorch's ResultTypeState: dimensioned, then 0-d, then numbers).
DType result_type(const std::vector<Promotable>& operands);
// The promotion role of argument i (a tensor or a Scalar).
Promotable promotable(const Args& args, size_t i);
// result_type of the given arguments (tensors or Scalars).
DType result_type(const Args& args, std::initializer_list<size_t> which);

// Converts to `dtype` and broadcasts to `shape`.
Value as(Context& c, Value x, DType dtype, const Shape& shape);
// Argument i, tensor or Scalar, likewise.
Value as(Context& c, const Args& args, size_t i, DType dtype, const Shape& shape);
// NumPy-style broadcast shape.
Shape broadcast_shapes(const std::vector<Shape>& shapes);
// Wraps negative dimension numbers; a rank-0 tensor accepts 0 and -1 and gives an empty list of dims from it.
int64_t wrap_dim(int64_t dim, int64_t rank);
// Wraps; an empty list (or an absent argument) means all dims.
Dims wrap_dims(const std::vector<int64_t>& dims, int64_t rank);

}  // namespace torch_tpu::ops
