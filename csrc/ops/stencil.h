// Linear maps along one dimension whose every output is a weighted sum of a few inputs at positions known when the
// program is emitted: interpolation, adaptive pooling, padding by reflection, overlap-add. The backward of each is the
// transpose of the same table.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/context.h"

namespace torch_tpu::ops {

struct Tap {
  int64_t position;
  double weight;
};

struct Stencil {
  int64_t inputs = 0;
  std::vector<std::vector<Tap>> outputs;  // the taps of each output; an empty list gives zero

  // One tap of weight 1 per output; a position outside of [0, inputs) gives none.
  static Stencil from_positions(int64_t inputs, const std::vector<int64_t>& positions);
  Stencil transposed() const;
};

// Applies `stencil` along `dim`, in x's dtype (weights are truncated where that is an integer). Inputs that an output
// does not name never touch it: an infinity stays where it is, which a product with a dense matrix would not give.
Value apply_stencil(Builder& b, Value x, int64_t dim, const Stencil& stencil);

}  // namespace torch_tpu::ops
