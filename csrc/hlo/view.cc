#include "hlo/view.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "hlo/view_plan.h"

namespace torch_tpu::hlo {
namespace {

std::string describe(const ViewSpec& view) {
  return std::string(hlo_name(view.dtype)) + " " + to_string(view.sizes) + " strides " + to_string(view.strides) +
         " offset " + std::to_string(view.offset);
}

bool contiguous(const ViewSpec& view) {
  int64_t expected = 1;
  for (size_t i = view.sizes.size(); i-- > 0;) {
    if (view.sizes[i] == 1) continue;
    if (view.strides[i] != expected) return false;
    expected *= view.sizes[i];
  }
  return true;
}

bool well_formed(Builder& b, const char* op, Value base, const ViewSpec& view) {
  const auto wrong = [&](const std::string& expected) {
    b.fail(ErrorCode::kInternal, std::string(op) + ": view, got <" + describe(view) + ">, expected <" + expected + ">");
    return false;
  };
  if (!base) {
    b.fail(ErrorCode::kInternal, std::string(op) + ": base, got <an absent value>, expected <a value>");
    return false;
  }
  if (view.dtype == DType::kInvalid || view.sizes.size() != view.strides.size())
    return wrong("a dtype and as many strides as sizes");
  for (int64_t size : view.sizes)
    if (size < 0) return wrong("sizes of at least 0");
  if (element_count(view.sizes) == 0) return true;
  const Reach reach = reach_of(view);
  const int64_t elements = base.numel() * byte_size(base.dtype()) / byte_size(view.dtype);
  if (reach.lowest < 0 || reach.highest >= elements) return wrong("a view inside " + base.type().text());
  return true;
}

// --- dtypes ----------------------------------------------------------------------------------------------------------

// The bytes of x in elements of `dtype`, in a shape as close to x's as it can be. Bytes at the end that do not fill an
// element are left out.
Value reinterpret(Builder& b, Value x, DType dtype) {
  const int64_t from = byte_size(x.dtype()), to = byte_size(dtype);
  Shape shape = x.shape();
  if (from == to) return b.bitcast(x, {dtype, shape});
  if (from > to) {
    shape.push_back(from / to);
    return b.bitcast(x, {dtype, shape});
  }
  const int64_t ratio = to / from;
  if (shape.empty() || shape.back() % ratio != 0) {
    const int64_t count = x.numel() / ratio;
    x = b.slice(b.reshape(x, {x.numel()}), {0}, {count * ratio});
    shape = {count * ratio};
  }
  shape.back() /= ratio;
  Shape grouped = shape;
  grouped.push_back(ratio);
  return b.bitcast(b.reshape(x, grouped), {dtype, shape});
}

// The dtype in which elements of `dtype` that lie in bytes of another one are moved. The embedded engine moves narrow
// floats as f32 and makes every NaN the same one on the way, which would change the bytes of what is not a float.
DType carrier(DType dtype) {
  if (!is_float(dtype) || byte_size(dtype) > 2) return dtype;
  return byte_size(dtype) == 2 ? DType::kU16 : DType::kU8;
}

// Puts elements of another dtype back into bytes of base's type; base's bytes behind them stay.
Value restore(Builder& b, Value base, Value elements) {
  const Value back = reinterpret(b, elements, base.dtype());
  const int64_t count = back.numel(), total = base.numel();
  if (count == total) return b.reshape(back, base.shape());
  const Value tail = b.slice(b.reshape(base, {total}), {count}, {total});
  return b.reshape(b.concatenate({b.reshape(back, {count}), tail}, 0), base.shape());
}

// conj and neg are their own inverses: the same on the way out and in.
Value resolve_bits(Builder& b, Value x, const ViewSpec& view) {
  if (view.conj && is_complex(x.dtype())) {
    const Value re = b.real(x), im = b.neg(b.imag(x));
    x = b.complex(re, im);
  }
  return view.neg ? b.neg(x) : x;
}

// --- cuts ------------------------------------------------------------------------------------------------------------

Value apply(Builder& b, Value x, const ViewStep& step) {
  switch (step.kind) {
    case ViewStep::Kind::kReshape:
      return b.reshape(x, step.to);
    case ViewStep::Kind::kSlice:
      return b.slice(x, step.start, step.limit, step.step);
    case ViewStep::Kind::kPad:
      return b.pad(x, b.scalar_int(x.dtype(), 0), Dims(step.from.size(), 0), step.high);
    case ViewStep::Kind::kTranspose:
      return b.transpose(x, step.permutation);
  }
  return x;
}

// `whole` with the box that starts at `start` replaced by `part`.
Value overwrite_box(Builder& b, Value whole, Value part, const Dims& start) {
  if (part.shape() == whole.shape()) return part;
  const int64_t largest = *std::max_element(whole.shape().begin(), whole.shape().end());
  const DType index = largest > std::numeric_limits<int32_t>::max() ? DType::kI64 : DType::kI32;
  Values starts;
  for (int64_t s : start) starts.push_back(b.scalar_int(index, s));
  return b.dynamic_update_slice(whole, part, starts);
}

// `whole` with every step[i]-th element from start[i] on replaced by `part`.
Value overwrite_slice(Builder& b, Value whole, Value part, const ViewStep& slice) {
  if (std::all_of(slice.step.begin(), slice.step.end(), [](int64_t s) { return s == 1; }))
    return overwrite_box(b, whole, part, slice.start);
  // Spread the new elements over their box, and choose them there.
  const size_t rank = slice.from.size();
  Dims none(rank, 0), interior(rank);
  for (size_t i = 0; i < rank; ++i) interior[i] = slice.step[i] - 1;
  const Value spread = b.pad(part, b.scalar_int(part.dtype(), 0), none, none, interior);
  const Value chosen = b.pad(b.ones({DType::kBool, part.shape()}), b.scalar_int(DType::kBool, 0), none, none, interior);
  Dims limit(rank);
  for (size_t i = 0; i < rank; ++i) limit[i] = slice.start[i] + spread.dim(static_cast<int64_t>(i));
  const Value box = b.slice(whole, slice.start, limit);
  return overwrite_box(b, whole, b.select(chosen, spread, box), slice.start);
}

// The inverse of `step`: `before` with what the step shows of it replaced by `after`.
Value unapply(Builder& b, Value before, Value after, const ViewStep& step) {
  switch (step.kind) {
    case ViewStep::Kind::kReshape:
      return b.reshape(after, step.from);
    case ViewStep::Kind::kSlice:
      return overwrite_slice(b, before, after, step);
    case ViewStep::Kind::kPad:
      return b.slice(after, Dims(step.from.size(), 0), step.from);
    case ViewStep::Kind::kTranspose: {
      Dims inverse(step.permutation.size());
      for (size_t i = 0; i < inverse.size(); ++i) inverse[step.permutation[i]] = static_cast<int64_t>(i);
      return b.transpose(after, inverse);
    }
  }
  return after;
}

ViewRoute route_of(const ViewPlan& plan, bool repeats) {
  if (plan.steps.empty() && !repeats) return ViewRoute::kIdentity;
  if (plan.has(ViewStep::Kind::kPad)) return ViewRoute::kRefined;
  if (plan.has(ViewStep::Kind::kSlice)) return plan.recut ? ViewRoute::kRefined : ViewRoute::kSlices;
  return plan.has(ViewStep::Kind::kTranspose) || repeats ? ViewRoute::kSlices : ViewRoute::kReshape;
}

// --- computed indices
// --------------------------------------------------------------------------------------------------

// offset + sum of index x stride over the dimensions, as a value of their sizes.
Value element_indices(Builder& b, const std::vector<ViewDim>& dims, int64_t offset, DType index) {
  const Type type{index, sizes_of(dims)};
  Value sum = b.constant_int(type, offset);
  for (size_t i = 0; i < dims.size(); ++i) {
    const Value steps =
        b.mul(b.iota({index, {dims[i].size}}, 0), b.constant_int({index, {dims[i].size}}, dims[i].stride));
    sum = b.add(sum, b.broadcast_in_dim(steps, type.shape, {static_cast<int64_t>(i)}));
  }
  return sum;
}

DType index_dtype(int64_t elements) {
  return elements > std::numeric_limits<int32_t>::max() ? DType::kI64 : DType::kI32;
}

Value gather_view(Builder& b, Value base, const ViewSpec& view) {
  const std::vector<ViewDim> dims = moving_dims(view);
  const Value flat = b.reshape(base, {base.numel()});
  // A dimension of stride 1 is fetched as one slice per index instead of element by element.
  std::vector<ViewDim> indexed;
  std::optional<size_t> run;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].stride == 1 && !run) {
      run = i;
    } else {
      indexed.push_back(dims[i]);
    }
  }
  const auto batch = static_cast<int64_t>(indexed.size());
  const Value indices = element_indices(b, indexed, view.offset, index_dtype(base.numel()));
  GatherDims how;
  how.start_index_map = {0};
  how.index_vector_dim = batch;
  how.slice_sizes = {run ? dims[*run].size : 1};
  if (run) {
    how.offset_dims = {batch};
  } else {
    how.collapsed_slice_dims = {0};
  }
  const Value found = b.gather(flat, indices, how);
  if (!run) return found;
  Dims permutation;
  for (size_t i = 0, next = 0; i < dims.size(); ++i)
    permutation.push_back(i == *run ? batch : static_cast<int64_t>(next++));
  return b.transpose(found, permutation);
}

Value scatter_view(Builder& b, Value base, const ViewSpec& view, Value x) {
  const int64_t total = base.numel(), count = x.numel();
  const DType index = index_dtype(std::max(total, count));
  const Value flat = b.reshape(base, {total}), updates = b.reshape(x, {count});
  const Value indices = b.reshape(element_indices(b, moving_dims(view), view.offset, index), {count, 1});
  ScatterDims how;
  how.inserted_window_dims = {0};
  how.scatter_dims_to_operand_dims = {0};
  how.index_vector_dim = 1;
  if (distinct_elements(view)) {
    how.unique_indices = true;
    const Value written =
        b.scatter(flat, indices, updates, how, [](Builder&, const Values& v) -> Values { return {v[1]}; });
    return b.reshape(written, base.shape());
  }
  // A scatter may apply equal indices in any order. The largest position that hits an element is the same in every
  // order, so scatter positions first and fetch the winners.
  const Value positions = b.iota({index, {count}}, 0);
  const Value winner = b.scatter(b.constant_int({index, {total}}, -1), indices, positions, how,
                                 [](Builder& r, const Values& v) -> Values { return {r.max(v[0], v[1])}; });
  GatherDims fetch;
  fetch.collapsed_slice_dims = {0};
  fetch.start_index_map = {0};
  fetch.index_vector_dim = 1;
  fetch.slice_sizes = {1};
  const Value zero = b.zeros_like(winner);
  const Value fetched = b.gather(updates, b.max(winner, zero), fetch);
  return b.reshape(b.select(b.ge(winner, zero), fetched, flat), base.shape());
}

// --- the two directions, base and view of one dtype
// --------------------------------------------------------------------

// From the moving dimensions to all of the view's: sizes of 1 and repetitions.
Value repeat(Builder& b, Value x, const ViewSpec& view, const std::vector<ViewDim>& dims) {
  if (x.numel() == element_count(view.sizes)) return b.reshape(x, view.sizes);
  Dims at;
  for (const ViewDim& dim : dims) at.push_back(dim.position);
  return b.broadcast_in_dim(x, view.sizes, at);
}

// The inverse: of repetitions the last one counts.
Value last_repetition(Builder& b, Value x, const ViewSpec& view) {
  Dims start(view.sizes.size(), 0);
  for (size_t i = 0; i < start.size(); ++i)
    if (view.strides[i] == 0) start[i] = view.sizes[i] - 1;
  return b.reshape(b.slice(x, start, view.sizes), sizes_of(moving_dims(view)));
}

// The view's sizes in the order of its strides; dimensions of size 1 keep their places.
Dims storage_order(const ViewSpec& view) {
  Dims order(view.sizes.size()), moving;
  std::iota(order.begin(), order.end(), 0);
  for (int64_t d : order)
    if (view.sizes[d] != 1) moving.push_back(d);
  std::stable_sort(moving.begin(), moving.end(),
                   [&](int64_t p, int64_t q) { return view.strides[p] > view.strides[q]; });
  size_t next = 0;
  for (int64_t& d : order)
    if (view.sizes[d] != 1) d = moving[next++];
  return order;
}

bool repeats(const ViewSpec& view) {
  for (size_t i = 0; i < view.sizes.size(); ++i)
    if (view.sizes[i] > 1 && view.strides[i] == 0) return true;
  return false;
}

// Every element from the storage's first on, once, in some order.
bool covers_densely(const ViewSpec& view) {
  if (repeats(view)) return false;
  const auto plan = plan_view({element_count(view.sizes)}, view);
  return plan && plan->whole();
}

}  // namespace

bool is_whole(const Type& base, const ViewSpec& view) {
  if (view.dtype != base.dtype || view.conj || view.neg) return false;
  const int64_t count = element_count(view.sizes);
  if (count != element_count(base.shape)) return false;
  return count == 0 || (view.offset == 0 && contiguous(view));
}

Value read_view(Builder& b, Value base, const ViewSpec& view, ViewRoute* route) {
  ViewRoute ignored;
  ViewRoute& taken = route ? *route : ignored;
  taken = ViewRoute::kIdentity;
  const Type type{view.dtype, view.sizes};
  if (!well_formed(b, "read_view", base, view)) return b.zeros({DType::kF32, view.sizes});
  if (element_count(view.sizes) == 0) return b.zeros(type);
  if (base.dtype() != view.dtype) base = reinterpret(b, base, carrier(view.dtype));
  const auto plan = plan_view(base.shape(), view);
  taken = plan ? route_of(*plan, repeats(view)) : ViewRoute::kGather;
  Value x = base;
  if (taken == ViewRoute::kIdentity || taken == ViewRoute::kReshape) {
    // To the moving dimensions and on to all of them is one reshape, or none.
    taken = base.shape() == view.sizes ? ViewRoute::kIdentity : ViewRoute::kReshape;
    return resolve_bits(b, b.bitcast(b.reshape(base, view.sizes), type), view);
  }
  if (plan) {
    for (const ViewStep& step : plan->steps) x = apply(b, x, step);
  } else {
    x = gather_view(b, base, view);
  }
  return resolve_bits(b, b.bitcast(repeat(b, x, view, moving_dims(view)), type), view);
}

Value write_view(Builder& b, Value base, const ViewSpec& view, Value x, ViewRoute* route) {
  ViewRoute ignored;
  ViewRoute& taken = route ? *route : ignored;
  taken = ViewRoute::kIdentity;
  if (!well_formed(b, "write_view", base, view)) return base ? base : b.zeros({DType::kF32, {}});
  const Type type{view.dtype, view.sizes};
  if (x.type() != type) {
    b.fail(ErrorCode::kInternal, "write_view: value, got <" + (x ? x.type().text() : "an absent value") +
                                     ">, expected <" + type.text() + ">");
    return base;
  }
  const int64_t bytes = x.numel() * byte_size(view.dtype), base_bytes = base.numel() * byte_size(base.dtype());
  if (bytes == 0) return base_bytes == 0 ? x : base;
  x = resolve_bits(b, x, view);
  if (bytes == base_bytes && covers_densely(view)) {
    const Dims order = storage_order(view);
    const bool sorted = std::is_sorted(order.begin(), order.end());
    taken = !sorted ? ViewRoute::kSlices : base.shape() == view.sizes ? ViewRoute::kIdentity : ViewRoute::kReshape;
    return b.transpose(x, order);
  }
  const bool same = base.dtype() == view.dtype;
  const Value elements = same ? base : reinterpret(b, base, carrier(view.dtype));
  if (!same) x = b.bitcast(x, {carrier(view.dtype), x.shape()});
  const auto plan = plan_view(elements.shape(), view);
  Value part = last_repetition(b, x, view);
  if (plan) {
    taken = route_of(*plan, repeats(view));
    // Only a slice needs to know what was there before; the stages behind the last one are not worth their text.
    size_t needed = plan->steps.size();
    while (needed > 0 && plan->steps[needed - 1].kind != ViewStep::Kind::kSlice) --needed;
    Values stages{elements};
    for (size_t i = 0; i + 1 < needed; ++i) stages.push_back(apply(b, stages.back(), plan->steps[i]));
    stages.resize(std::max<size_t>(plan->steps.size(), 1));
    for (size_t i = plan->steps.size(); i-- > 0;) part = unapply(b, stages[i], part, plan->steps[i]);
  } else {
    taken = ViewRoute::kGather;
    part = scatter_view(b, elements, view, part);
  }
  if (part.shape() != elements.shape()) part = b.reshape(part, elements.shape());
  return same ? part : restore(b, base, part);
}

}  // namespace torch_tpu::hlo
