#include "hlo/view_plan.h"

#include <algorithm>
#include <numeric>

namespace torch_tpu::hlo {
namespace {

// A dimension of the value on its way from the base to the view.
struct Axis {
  int64_t length = 1;
  int64_t offset = 0;
  std::vector<ViewDim> pending;  // largest stride first, strides in steps of this axis
  int64_t position = -1;         // the view dimension it has become; -1: none (then of length 1)
  bool done = false;
};

int64_t extent_after(const std::vector<ViewDim>& dims, size_t first) {
  int64_t extent = 1;
  for (size_t i = first; i < dims.size(); ++i) extent += (dims[i].size - 1) * dims[i].stride;
  return extent;
}

bool nested(const std::vector<ViewDim>& dims) {
  for (size_t i = 0; i + 1 < dims.size(); ++i)
    if (extent_after(dims, i + 1) > dims[i].stride) return false;
  return true;
}

void merge(Shape& sizes, size_t outer) {
  sizes[outer] *= sizes[outer + 1];
  sizes.erase(sizes.begin() + static_cast<int64_t>(outer) + 1);
}

// Gives each base dimension the view dimensions that move inside it, merging base dimensions where one crosses a
// border. `dims` are sorted by descending stride.
std::optional<std::vector<Axis>> assign(Shape& sizes, const std::vector<ViewDim>& dims, int64_t offset, bool* merged) {
  for (;;) {
    const std::vector<int64_t> strides = contiguous_strides(sizes);
    std::vector<Axis> axes(sizes.size());
    int64_t to_merge = -1;
    for (const ViewDim& dim : dims) {
      size_t d = 0;
      while (strides[d] > dim.stride) ++d;
      if (dim.stride % strides[d] != 0) to_merge = static_cast<int64_t>(d);
      axes[d].pending.push_back({dim.size, dim.stride / strides[d], dim.position});
    }
    for (size_t d = 0; d < sizes.size() && to_merge < 0; ++d) {
      axes[d].length = sizes[d];
      axes[d].offset = offset / strides[d] % sizes[d];
      if (axes[d].offset + extent_after(axes[d].pending, 0) > sizes[d]) {
        if (d == 0) return std::nullopt;
        to_merge = static_cast<int64_t>(d) - 1;
      }
    }
    if (to_merge < 0) {
      for (const Axis& axis : axes)
        if (!nested(axis.pending)) return std::nullopt;
      return axes;
    }
    merge(sizes, static_cast<size_t>(to_merge));
    *merged = true;
  }
}

class Chain {
 public:
  explicit Chain(Shape shape) : shape_(std::move(shape)) {}

  void reshape(Shape to) {
    if (!steps_.empty() && steps_.back().kind == ViewStep::Kind::kReshape) {
      steps_.back().to = to;
      if (steps_.back().from == to) steps_.pop_back();
    } else if (to != shape_) {
      steps_.push_back({ViewStep::Kind::kReshape, shape_, to, {}, {}, {}, {}, {}});
    }
    shape_ = std::move(to);
  }
  void slice(std::vector<int64_t> start, std::vector<int64_t> limit, std::vector<int64_t> step) {
    Shape to(shape_.size());
    for (size_t i = 0; i < to.size(); ++i) to[i] = (limit[i] - start[i] + step[i] - 1) / step[i];
    if (to == shape_) return;
    steps_.push_back({ViewStep::Kind::kSlice, shape_, to, std::move(start), std::move(limit), std::move(step), {}, {}});
    shape_ = std::move(to);
  }
  void pad(std::vector<int64_t> high) {
    Shape to = shape_;
    for (size_t i = 0; i < to.size(); ++i) to[i] += high[i];
    if (to == shape_) return;
    steps_.push_back({ViewStep::Kind::kPad, shape_, to, {}, {}, {}, std::move(high), {}});
    shape_ = std::move(to);
  }
  void transpose(std::vector<int64_t> permutation) {
    if (std::is_sorted(permutation.begin(), permutation.end())) return;
    Shape to;
    for (int64_t d : permutation) to.push_back(shape_[d]);
    steps_.push_back({ViewStep::Kind::kTranspose, shape_, to, {}, {}, {}, {}, std::move(permutation)});
    shape_ = std::move(to);
  }
  std::vector<ViewStep> take() { return std::move(steps_); }

 private:
  Shape shape_;
  std::vector<ViewStep> steps_;
};

// One level of Note [Nested cuts] for all axes at once. Returns true if an axis was split.
bool cut(Chain& chain, std::vector<Axis>& axes) {
  const size_t rank = axes.size();
  std::vector<int64_t> start(rank), limit(rank), step(rank, 1), high(rank);
  std::vector<Axis> next;
  bool split = false;
  for (size_t i = 0; i < rank; ++i) {
    Axis axis = axes[i];
    start[i] = axis.offset;
    if (axis.done || axis.pending.empty()) {
      limit[i] = axis.done ? axis.length : axis.offset + 1;
      axis.length = limit[i] - start[i];
    } else if (axis.pending.size() == 1) {
      const ViewDim dim = axis.pending[0];
      limit[i] = axis.offset + (dim.size - 1) * dim.stride + 1;
      step[i] = dim.stride;
      axis.length = dim.size;
      axis.position = dim.position;
    } else {
      const ViewDim dim = axis.pending[0];
      Axis row;
      row.length = dim.stride;
      row.pending.assign(axis.pending.begin() + 1, axis.pending.end());
      // Whole rows from a row's border need no shift, where the inner part does not run over the row's end.
      row.offset = axis.offset % dim.stride;
      if (row.offset + extent_after(row.pending, 0) > dim.stride) row.offset = 0;
      start[i] -= row.offset;
      limit[i] = std::min(axis.length, start[i] + dim.size * dim.stride);
      high[i] = start[i] + dim.size * dim.stride - limit[i];
      axis.length = dim.size;
      axis.position = dim.position;
      axis.offset = 0;
      axis.done = true;
      axis.pending.clear();
      next.push_back(axis);
      next.push_back(row);
      split = true;
      continue;
    }
    axis.offset = 0;
    axis.done = true;
    axis.pending.clear();
    next.push_back(axis);
  }
  chain.slice(std::move(start), std::move(limit), std::move(step));
  chain.pad(std::move(high));
  Shape shape;
  for (const Axis& axis : next) shape.push_back(axis.length);
  chain.reshape(std::move(shape));
  axes = std::move(next);
  return split;
}

}  // namespace

std::vector<ViewDim> moving_dims(const ViewSpec& view) {
  std::vector<ViewDim> dims;
  for (size_t i = 0; i < view.sizes.size(); ++i)
    if (view.sizes[i] > 1 && view.strides[i] != 0)
      dims.push_back({view.sizes[i], view.strides[i], static_cast<int64_t>(i)});
  return dims;
}

Shape sizes_of(const std::vector<ViewDim>& dims) {
  Shape shape;
  for (const ViewDim& dim : dims) shape.push_back(dim.size);
  return shape;
}

Reach reach_of(const ViewSpec& view) {
  Reach reach{view.offset, view.offset};
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    const int64_t distance = (view.sizes[i] - 1) * view.strides[i];
    (distance < 0 ? reach.lowest : reach.highest) += distance;
  }
  return reach;
}

bool ViewPlan::has(ViewStep::Kind kind) const {
  return std::any_of(steps.begin(), steps.end(), [kind](const ViewStep& s) { return s.kind == kind; });
}

std::optional<ViewPlan> plan_view(const Shape& base, const ViewSpec& view) {
  const std::vector<ViewDim> dims = moving_dims(view);
  std::vector<ViewDim> sorted = dims;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const ViewDim& a, const ViewDim& b) { return a.stride > b.stride; });
  if (!sorted.empty() && sorted.back().stride < 0) return std::nullopt;
  Shape sizes;
  for (int64_t size : base)
    if (size != 1) sizes.push_back(size);
  if (sizes.empty()) sizes.push_back(1);

  ViewPlan plan;
  bool merged = false, split = false;
  auto axes = assign(sizes, sorted, view.offset, &merged);
  if (!axes) return std::nullopt;
  Chain chain(base);
  chain.reshape(sizes);
  do split |= cut(chain, *axes);
  while (std::any_of(axes->begin(), axes->end(), [](const Axis& a) { return !a.done; }));

  Shape shape;
  std::vector<int64_t> positions;  // the view dimension of each axis that is left
  for (const Axis& axis : *axes) {
    if (axis.position < 0) continue;
    shape.push_back(axis.length);
    positions.push_back(axis.position);
  }
  chain.reshape(shape);
  std::vector<int64_t> permutation;
  for (const ViewDim& dim : dims)
    permutation.push_back(std::find(positions.begin(), positions.end(), dim.position) - positions.begin());
  chain.transpose(std::move(permutation));
  plan.steps = chain.take();
  plan.recut = merged || split;
  return plan;
}

bool distinct_elements(const ViewSpec& view, int64_t limit) {
  const std::vector<ViewDim> dims = moving_dims(view);
  ViewSpec moving;
  for (const ViewDim& dim : dims) {
    moving.sizes.push_back(dim.size);
    moving.strides.push_back(dim.stride);
  }
  const int64_t count = element_count(moving.sizes);
  const Reach reach = reach_of(moving);
  const int64_t span = reach.highest - reach.lowest + 1;
  if (count > span || span > 64 * limit || count > limit) return false;
  std::vector<bool> seen(span, false);
  std::vector<int64_t> index(dims.size(), 0);
  int64_t element = -reach.lowest;
  for (int64_t n = 0; n < count; ++n) {
    if (seen[element]) return false;
    seen[element] = true;
    for (size_t d = dims.size(); d-- > 0;) {
      element += dims[d].stride;
      if (++index[d] < dims[d].size) break;
      element -= dims[d].stride * dims[d].size;
      index[d] = 0;
    }
  }
  return true;
}

}  // namespace torch_tpu::hlo
