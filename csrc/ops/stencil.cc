#include "ops/stencil.h"

#include <algorithm>

#include "ops/indexing.h"

namespace torch_tpu::ops {
namespace {

// Up to this many taps the sum is written out; beyond, taps become a dimension that is reduced.
constexpr int64_t kUnrolledTaps = 4;

struct TapTable {
  std::vector<int64_t> positions;
  std::vector<double> weights;
  bool weighted = false;  // some weight of a present tap is not 1
  bool missing = false;   // some output has fewer taps
};

// Tap k of output o is entry o * taps + k.
TapTable tabulate(const Stencil& stencil, int64_t first, int64_t taps) {
  TapTable table;
  for (const std::vector<Tap>& output : stencil.outputs) {
    for (int64_t k = first; k < first + taps; ++k) {
      bool present = k < static_cast<int64_t>(output.size());
      table.positions.push_back(present ? output[k].position : 0);
      table.weights.push_back(present ? output[k].weight : 0.0);
      table.missing |= !present;
      table.weighted |= present && output[k].weight != 1.0;
    }
  }
  return table;
}

Value along(Builder& b, Value vector, const Shape& shape, int64_t dim) {
  return b.broadcast_in_dim(vector, shape, {dim});
}

Value weighted_taps(Builder& b, Value x, int64_t dim, const TapTable& table) {
  Value taken = take_static(b, x, dim, table.positions);
  Value product = taken;
  if (table.weighted) {
    std::vector<int64_t> whole(table.weights.begin(), table.weights.end());
    Value weights = is_float(x.dtype()) ? b.vector(x.dtype(), table.weights)
                                        : b.convert(b.vector_int(DType::kI64, whole), x.dtype());
    product = b.mul(taken, along(b, weights, taken.shape(), dim));
  }
  if (table.missing) {
    std::vector<int64_t> present;
    for (double w : table.weights) present.push_back(w != 0.0);
    Value mask = b.convert(b.vector_int(DType::kI32, present), DType::kBool);
    product = b.select(along(b, mask, taken.shape(), dim), product, b.zeros(taken.type()));
  }
  return product;
}

}  // namespace

Stencil Stencil::from_positions(int64_t inputs, const std::vector<int64_t>& positions) {
  Stencil stencil;
  stencil.inputs = inputs;
  for (int64_t p : positions) {
    stencil.outputs.emplace_back();
    if (p >= 0 && p < inputs) stencil.outputs.back().push_back({p, 1.0});
  }
  return stencil;
}

Stencil Stencil::transposed() const {
  Stencil result;
  result.inputs = static_cast<int64_t>(outputs.size());
  result.outputs.resize(inputs);
  for (size_t o = 0; o < outputs.size(); ++o) {
    for (const Tap& tap : outputs[o]) {
      std::vector<Tap>& taps = result.outputs[tap.position];
      // Taps that meet at a border (clamped positions) are one tap with the sum of their weights.
      if (!taps.empty() && taps.back().position == static_cast<int64_t>(o)) {
        taps.back().weight += tap.weight;
      } else {
        taps.push_back({static_cast<int64_t>(o), tap.weight});
      }
    }
  }
  return result;
}

Value apply_stencil(Builder& b, Value x, int64_t dim, const Stencil& stencil) {
  auto count = static_cast<int64_t>(stencil.outputs.size());
  int64_t taps = 0;
  for (const std::vector<Tap>& output : stencil.outputs) taps = std::max(taps, static_cast<int64_t>(output.size()));
  Shape shape = x.shape();
  shape[dim] = count;
  if (element_count(shape) == 0 || x.numel() == 0 || taps == 0) return b.zeros({x.dtype(), shape});
  if (taps <= kUnrolledTaps) {
    Value sum;
    for (int64_t k = 0; k < taps; ++k) {
      Value term = weighted_taps(b, x, dim, tabulate(stencil, k, 1));
      sum = sum ? b.add(sum, term) : term;
    }
    return sum;
  }
  Value all = weighted_taps(b, x, dim, tabulate(stencil, 0, taps));
  Shape split = x.shape();
  split[dim] = count;
  split.insert(split.begin() + dim + 1, taps);
  return b.reduce_sum(b.reshape(all, split), {dim + 1});
}

}  // namespace torch_tpu::ops
