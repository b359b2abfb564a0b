// The type of a StableHLO value.
#pragma once

#include <string>

#include "base/dtype.h"
#include "base/shape.h"

namespace torch_tpu::hlo {

struct Type {
  DType dtype = DType::kInvalid;
  Shape shape;

  bool operator==(const Type&) const = default;
  // "tensor<2x3xf32>"
  std::string text() const;
};

}  // namespace torch_tpu::hlo
