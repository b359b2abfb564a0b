// Shapes and strided views of a storage, as plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace torch_tpu {

using Shape = std::vector<int64_t>;

// Product of the sizes; 1 for rank 0.
int64_t element_count(const Shape& shape);

// Row-major strides in elements.
std::vector<int64_t> contiguous_strides(const Shape& shape);

// "[2, 3]", for messages.
std::string to_string(const Shape& shape);

// How a tensor looks at its storage: sizes, strides and offset in elements of `dtype`, plus PyTorch's lazy bits.
struct ViewSpec {
  DType dtype = DType::kInvalid;
  Shape sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  bool conj = false;
  bool neg = false;

  bool operator==(const ViewSpec&) const = default;
};

}  // namespace torch_tpu
