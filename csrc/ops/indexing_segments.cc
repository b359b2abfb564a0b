// segment_reduce and its gradient: runs of consecutive elements of one dimension, given by lengths or offsets.
#include <cmath>
#include <limits>

#include "ops/indexing.h"
#include "ops/promote.h"
#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

// Data as [batches, n, rest]; every position knows its segment.
struct Segments {
  int64_t batches, n, rest, count;  // count: segments per batch
  Value segment;                    // i64 [batches * n]: batch * count + segment, -1 outside of all segments
  Value lengths;                    // i64 [batches * count]
};

// Where each segment ends, i64 [batches, count], and the first one starts.
Segments find_segments(Context& c, Value data, Value lengths, Value offsets, int64_t axis) {
  Builder& b = c.b;
  Segments s{};
  s.batches = element_count(Shape(data.shape().begin(), data.shape().begin() + axis));
  s.n = data.dim(axis);
  s.rest = element_count(Shape(data.shape().begin() + axis + 1, data.shape().end()));
  s.count = lengths ? lengths.dim(-1) : offsets.dim(-1) - 1;
  Value starts, ends;
  if (lengths) {
    s.lengths = b.reshape(b.convert(lengths, DType::kI64), {s.batches, s.count});
    ends = s.count > 0 ? running_sum(c, {b, s.lengths}, 1).value() : s.lengths;
    starts = b.sub(ends, s.lengths);
  } else {
    Value bounds = b.reshape(b.convert(offsets, DType::kI64), {s.batches, s.count + 1});
    starts = b.slice_dim(bounds, 1, 0, s.count);
    ends = b.slice_dim(bounds, 1, 1, s.count + 1);
    s.lengths = b.sub(ends, starts);
  }
  s.lengths = b.reshape(s.lengths, {s.batches * s.count});
  Value position = b.iota({DType::kI64, {s.batches, s.n}}, 1);
  Value segment = search_sorted(b, ends, position, /*right=*/true);
  Value outside = b.ge(segment, b.constant_int(segment.type(), s.count));
  if (s.count > 0) {
    Value first = b.broadcast_in_dim(b.slice_dim(starts, 1, 0, 1), segment.shape(), {0, 1});
    outside = b.logical_or(outside, b.lt(position, first));
  }
  Value batch = b.mul(b.iota(segment.type(), 0), b.constant_int(segment.type(), s.count));
  segment = b.select(outside, b.constant_int(segment.type(), -1), b.add(segment, batch));
  s.segment = b.reshape(segment, {s.batches * s.n});
  return s;
}

Value by_segment(Builder& b, const Segments& s, Value elements, Value start, Combine combine) {
  return scatter_rows(b, start, 0, s.segment, elements, combine);
}

// A value per segment at every position of it.
Value at_positions(Builder& b, const Segments& s, Value x) {
  Value index = b.clamp(b.scalar_int(DType::kI64, 0), s.segment, b.scalar_int(DType::kI64, x.dim(0) - 1));
  return take_dim(b, x, 0, index);
}

Combine combine_of(Context& c, const std::string& reduce) {
  if (reduce == "max" || reduce == "min") return reduce == "max" ? Combine::kMaximum : Combine::kMinimum;
  return parse_combine(c, reduce);
}

Value start_of(Context& c, const Args& args, size_t initial, const Type& type, Combine combine) {
  return args.none(initial) ? combine_identity(c.b, type, combine) : as(c, args, initial, type.dtype, type.shape);
}

// segment_reduce(data, reduce, lengths, indices, offsets, axis, unsafe, initial)
Values segment_reduce(Context& c, const Args& args) {
  Builder& b = c.b;
  const Type& out = c.out();
  Value data = args.tensor(0);
  if (element_count(out.shape) == 0) return {b.zeros(out)};
  const std::string& reduce = args.string(1);
  Combine combine = combine_of(c, reduce);
  Segments s = find_segments(c, data, args.tensor(2), args.tensor(4), wrap_dim(args.integer_or(5, 0), data.rank()));
  DType dtype = compute_dtype(out.dtype);
  Value elements = b.reshape(b.convert(data, dtype), {s.batches * s.n, s.rest});
  Value start = start_of(c, args, 7, {dtype, {s.batches * s.count, s.rest}}, combine);
  Value result = by_segment(b, s, elements, start, combine);
  if (reduce == "mean") {
    Value length = b.broadcast_in_dim(b.convert(s.lengths, dtype), result.shape(), {0});
    Value none = b.eq(length, b.zeros(length.type()));
    Value mean = b.div(result, length);
    result = b.select(none, args.none(7) ? b.constant(result.type(), std::nan("")) : result, mean);
  }
  return {b.reshape(b.convert(result, out.dtype), out.shape)};
}

// The product of a segment's other elements. Quotients serve where the element is neither zero nor NaN.
Value product_of_others(Context& c, const Segments& s, Value elements, Value output, Value start) {
  Builder& b = c.b;
  Value zero = b.zeros(elements.type()), one = b.ones(elements.type());
  Value is_zero = b.eq(elements, zero), is_nan = b.is_nan(elements);
  Value special = b.logical_or(is_zero, is_nan);
  auto count = [&](Value mask) {
    Value sum = by_segment(b, s, b.convert(mask, elements.dtype()), b.zeros(start.type()), Combine::kAdd);
    return b.sub(at_positions(b, s, sum), b.convert(mask, elements.dtype()));
  };
  Value plain = at_positions(b, s, by_segment(b, s, b.select(special, one, elements), start, Combine::kMultiply));
  Value others = b.select(b.gt(count(is_zero), zero), zero, plain);
  others = b.select(b.gt(count(is_nan), zero), b.constant(elements.type(), std::nan("")), others);
  return b.select(special, others, b.div(at_positions(b, s, output), elements));
}

// _segment_reduce_backward(grad, output, data, reduce, lengths, offsets, axis, initial)
Values segment_reduce_backward(Context& c, const Args& args) {
  Builder& b = c.b;
  const Type& out = c.out();
  Value data = args.tensor(2);
  if (element_count(out.shape) == 0 || args.tensor(0).numel() == 0) return {b.zeros(out)};
  const std::string& reduce = args.string(3);
  Segments s = find_segments(c, data, args.tensor(4), args.tensor(5), wrap_dim(args.integer_or(6, 0), data.rank()));
  DType dtype = compute_dtype(out.dtype);
  const Shape per_segment = {s.batches * s.count, s.rest};
  Value elements = b.reshape(b.convert(data, dtype), {s.batches * s.n, s.rest});
  Value output = b.reshape(b.convert(args.tensor(1), dtype), per_segment);
  Value grad = at_positions(b, s, b.reshape(b.convert(args.tensor(0), dtype), per_segment));
  Value zero = b.zeros(elements.type()), result = grad;
  if (reduce == "mean") {
    Value length = at_positions(b, s, b.broadcast_in_dim(b.convert(s.lengths, dtype), per_segment, {0}));
    result = b.div(grad, length);
  } else if (reduce == "max" || reduce == "min") {
    // Elements that tie for the extreme share its gradient.
    Value hit = b.logical_or(b.eq(elements, at_positions(b, s, output)), b.is_nan(elements));
    Value ties = by_segment(b, s, b.convert(hit, dtype), b.zeros(output.type()), Combine::kAdd);
    result = b.select(hit, b.div(grad, at_positions(b, s, ties)), zero);
  } else if (reduce == "prod") {
    Value start = start_of(c, args, 7, output.type(), Combine::kMultiply);
    result = b.mul(grad, product_of_others(c, s, elements, output, start));
  }
  Value inside = b.ge(s.segment, b.zeros(s.segment.type()));
  result = b.select(b.broadcast_in_dim(inside, result.shape(), {0}), result, zero);
  return {b.reshape(b.convert(result, out.dtype), out.shape)};
}

}  // namespace

void add_segment_rows(Rows& rows) {
  rows.push_back(Row{"aten::segment_reduce", segment_reduce});
  rows.push_back(Row{"aten::_segment_reduce_backward", segment_reduce_backward});
}

}  // namespace torch_tpu::ops
