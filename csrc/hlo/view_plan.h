// How a strided view is cut out of a dense base: integer reasoning only, no StableHLO.
//
// Note [Nested cuts]. Sort the view's dimensions by stride. When every dimension's stride is at least the extent of
// all the smaller ones together, the view is a tree of rows: cut the base into rows of `stride` elements, keep some of
// them, and go on inside a row. Each level is slice, pad (where the last row is cut short) and reshape. This is done
// inside each dimension of the base by itself as far as possible, because a flattened base is expensive on tiled
// devices; neighbouring base dimensions are merged only where a view dimension crosses them. Views that overlap
// themselves or interleave (strides 3 and 2) are no such tree: those are gathered.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/shape.h"

namespace torch_tpu::hlo {

struct ViewStep {
  enum class Kind { kReshape, kSlice, kPad, kTranspose };
  Kind kind;
  Shape from, to;
  std::vector<int64_t> start, limit, step;  // kSlice
  std::vector<int64_t> high;                // kPad: at the end of each dimension
  std::vector<int64_t> permutation;         // kTranspose
};

// One dimension of a view that moves: size above 1, stride not 0.
struct ViewDim {
  int64_t size, stride;
  int64_t position;  // among the view's dimensions
  bool operator==(const ViewDim&) const = default;
};

// The view's moving dimensions, in the view's order.
std::vector<ViewDim> moving_dims(const ViewSpec& view);
// Their sizes.
Shape sizes_of(const std::vector<ViewDim>& dims);

// Smallest and largest element index that the view touches; meaningless for empty views.
struct Reach {
  int64_t lowest, highest;
};
Reach reach_of(const ViewSpec& view);

struct ViewPlan {
  // Leads from the base's shape to the sizes of the moving dimensions, in the view's order.
  std::vector<ViewStep> steps;
  // The base's dimensions were merged or split (beyond a mere reshape) to get there.
  bool recut = false;
  bool has(ViewStep::Kind kind) const;
  // Every element of the base is reached exactly once.
  bool whole() const { return !has(ViewStep::Kind::kSlice) && !has(ViewStep::Kind::kPad); }
};

// nullopt: no chain of cuts reaches this view. The view must lie inside the base and not be empty.
std::optional<ViewPlan> plan_view(const Shape& base, const ViewSpec& view);

// True if no element is reached twice through the moving dimensions. Exact up to `limit` elements, false beyond.
bool distinct_elements(const ViewSpec& view, int64_t limit = int64_t{1} << 22);

}  // namespace torch_tpu::hlo
