// Strided views of a storage as StableHLO: reading one out of its base, and writing one back.
//
// The base is the storage's buffer with its own type; its elements in row-major order are the storage's bytes. The
// view's sizes, strides and offset count elements of the view's dtype.
#pragma once

#include "base/shape.h"
#include "hlo/builder.h"

namespace torch_tpu::hlo {

// How a view was reached, for statistics and tests.
enum class ViewRoute { kIdentity, kReshape, kSlices, kRefined, kGather };

// True if the view covers its base exactly, element for element in row-major order, with the same dtype.
bool is_whole(const Type& base, const ViewSpec& view);

// Reads `view` out of `base`: a value of type {view.dtype, view.sizes}, conj / neg bits resolved.
Value read_view(Builder& b, Value base, const ViewSpec& view, ViewRoute* route = nullptr);

// Returns `base` with the elements that `view` covers replaced by `x` (type {view.dtype, view.sizes}, logical values:
// conj / neg bits are applied on the way in). Where a view covers an element several times the last one in row-major
// order wins, as on CPU. The result has base's type, unless the view covers the whole storage with another shape or
// dtype: then the result has the storage's bytes with type {view.dtype, sizes in storage order}.
Value write_view(Builder& b, Value base, const ViewSpec& view, Value x, ViewRoute* route = nullptr);

}  // namespace torch_tpu::hlo
