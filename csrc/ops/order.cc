// Everything that sorts or searches: sort, topk, kthvalue, median, mode, searchsorted, bucketize, isin.
//
// PyTorch's order puts NaN last when ascending and first when descending, and -0 equals +0; the sorts are stable.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "ops/indexing.h"
#include "ops/promote.h"
#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

hlo::Region comparator(bool descending) {
  return [descending](Builder& b, const Values& v) -> Values {
    Value x = descending ? v[1] : v[0], y = descending ? v[0] : v[1];
    Value less = b.lt(x, y);
    if (!is_float(x.dtype())) return {less};
    return {b.logical_or(less, b.logical_and(b.is_nan(y), b.logical_not(b.is_nan(x))))};
  };
}

DType position_dtype(int64_t size) { return size < std::numeric_limits<int32_t>::max() ? DType::kI32 : DType::kI64; }

// Values of at most 32 bits as u32 in PyTorch's order: all NaN are one largest number and -0 is +0.
Value order_key(Builder& b, Value x, bool descending) {
  Value key;
  if (is_float(x.dtype())) {
    // On the bits, because comparisons of the engine take denormals for zero.
    Value bits = b.bitcast(b.convert(x, DType::kF32), {DType::kU32, x.shape()});
    auto word = [&](uint32_t v) { return b.constant_uint(bits.type(), v); };
    Value is_nan = b.gt(b.logical_and(bits, word(0x7FFFFFFFu)), word(0x7F800000u));
    bits = b.select(b.eq(bits, word(0x80000000u)), word(0), bits);
    Value negative = b.ge(bits, word(0x80000000u));
    key = b.select(negative, b.unary("not", bits), b.logical_or(bits, word(0x80000000u)));
    key = b.select(is_nan, word(0xFFFFFFFFu), key);
  } else if (is_signed_integer(x.dtype())) {
    Value bits = b.bitcast(b.convert(x, DType::kI32), {DType::kU32, x.shape()});
    key = b.logical_xor(bits, b.constant_uint(bits.type(), 0x80000000u));
  } else {
    key = b.convert(x, DType::kU32);
  }
  return descending ? b.unary("not", key) : key;
}

// One sort of 64-bit words, the value's key above its position: XLA:CPU sorts single words with the C++ library's own
// comparison, pairs with a compiled callback. Positions make the order strict, so that it is stable by itself.
Values sort_packed(Builder& b, Value x, int64_t dim, bool descending) {
  Type word{DType::kU64, x.shape()};
  Value key = b.convert(order_key(b, x, descending), DType::kU64);
  Value packed = b.logical_or(b.shift_left(key, b.constant_uint(word, 32)), b.iota(word, dim));
  auto less = [](Builder& rb, const Values& v) -> Values { return {rb.lt(v[0], v[1])}; };
  Value sorted = b.sort({packed}, dim, /*stable=*/false, less)[0];
  Value position = b.convert(b.logical_and(sorted, b.constant_uint(word, 0xFFFFFFFFu)), DType::kI32);
  return {gather_dim(b, x, dim, position), position};
}

// {values, positions (i32 or i64)} of a stable sort along `dim`.
Values sort_dim(Context& c, Value x, int64_t dim, bool descending) {
  Builder& b = c.b;
  bool packs = byte_size(x.dtype()) <= 4 && !is_float8(x.dtype()) && position_dtype(x.dim(dim)) == DType::kI32;
  if (c.platform == Platform::kCpu && packs && x.numel() > 0) return sort_packed(b, x, dim, descending);
  Value position = b.iota({position_dtype(x.dim(dim)), x.shape()}, dim);
  if (x.numel() == 0) return {x, position};
  // A bool has no order of its own in XLA's sorter on every platform; a byte has.
  Value key = is_bool(x.dtype()) ? b.convert(x, DType::kI8) : x;
  Values sorted = b.sort({key, position}, dim, /*stable=*/true, comparator(descending));
  return {b.convert(sorted[0], x.dtype()), sorted[1]};
}

Values pair(Context& c, Value values, Value positions) {
  Builder& b = c.b;
  return {b.reshape(values, c.out(0).shape), b.reshape(b.convert(positions, DType::kI64), c.out(1).shape)};
}

// sort.stable(self, stable, dim, descending); plain sort reaches it through PyTorch's own composite.
Values sort_stable(Context& c, const Args& args) {
  Value x = at_least_1d(c.b, args.tensor(0));
  Values sorted = sort_dim(c, x, wrap_dim(args.integer_or(2, -1), x.rank()), args.flag_or(3, false));
  return pair(c, sorted[0], sorted[1]);
}

// The k largest (smallest) along the last dimension of an x that f32 holds exactly. chlo.top_k orders by the bits, with
// -NaN below and +NaN above everything: NaN, PyTorch's largest, gets the sign that puts it there.
Values top_k_last(Builder& b, Value x, int64_t k, bool largest) {
  Value f = b.convert(x, DType::kF32), key = largest ? f : b.neg(f);
  Value nan = b.bitcast(b.constant_uint({DType::kU32, x.shape()}, largest ? 0x7FC00000u : 0xFFC00000u), f.type());
  if (is_float(x.dtype())) key = b.select(b.is_nan(f), nan, key);
  Values top = b.top_k(key, k);
  return {b.convert(largest ? top[0] : b.neg(top[0]), x.dtype()), top[1]};
}

// topk(self, k, dim, largest, sorted): ties in the order of a stable sort.
Values topk(Context& c, const Args& args) {
  Builder& b = c.b;
  Value x = at_least_1d(b, args.tensor(0));
  int64_t k = args.integer(1), dim = wrap_dim(args.integer_or(2, -1), x.rank());
  if (element_count(c.out().shape) == 0) return {b.zeros(c.out(0)), b.zeros(c.out(1))};
  bool exact_in_f32 = is_float(x.dtype()) ? byte_size(x.dtype()) <= 4 : byte_size(x.dtype()) <= 2;
  if (exact_in_f32) {
    Dims swap(x.rank());
    std::iota(swap.begin(), swap.end(), 0);
    std::swap(swap[dim], swap.back());
    Values top = top_k_last(b, b.transpose(x, swap), k, args.flag_or(3, true));
    return pair(c, b.transpose(top[0], swap), b.transpose(top[1], swap));
  }
  Values sorted = sort_dim(c, x, dim, args.flag_or(3, true));
  return pair(c, b.slice_dim(sorted[0], dim, 0, k), b.slice_dim(sorted[1], dim, 0, k));
}

// kthvalue(self, k, dim, keepdim)
Values kthvalue(Context& c, const Args& args) {
  Builder& b = c.b;
  Value x = at_least_1d(b, args.tensor(0));
  int64_t k = args.integer(1), dim = wrap_dim(args.integer_or(2, -1), x.rank());
  if (x.numel() == 0) return {b.zeros(c.out(0)), b.zeros(c.out(1))};
  Values sorted = sort_dim(c, x, dim, /*descending=*/false);
  return pair(c, b.slice_dim(sorted[0], dim, k - 1, k), b.slice_dim(sorted[1], dim, k - 1, k));
}

// {value, position} of the lower median along `dim`, which keeps size 1. With a NaN in the line the median is the first
// NaN, unless NaN does not count.
Values median_dim(Context& c, Value x, int64_t dim, bool ignore_nan) {
  Builder& b = c.b;
  Values sorted = sort_dim(c, x, dim, /*descending=*/false);
  int64_t n = x.dim(dim), middle = (n - 1) / 2;
  if (!is_float(x.dtype())) {
    return {b.slice_dim(sorted[0], dim, middle, middle + 1), b.slice_dim(sorted[1], dim, middle, middle + 1)};
  }
  DType dtype = position_dtype(n);
  Value nans = b.unsqueeze(b.reduce_sum(b.convert(b.is_nan(x), dtype), {dim}), dim);
  Value count = b.constant_int(nans.type(), n), one = b.constant_int(nans.type(), 1);
  Value numbers = b.sub(count, nans), at;
  if (ignore_nan) {
    at = b.div(b.sub(b.max(numbers, one), one), b.constant_int(nans.type(), 2));
  } else {
    at = b.select(b.eq(numbers, count), b.constant_int(nans.type(), middle), numbers);
  }
  return {gather_dim(b, sorted[0], dim, at), gather_dim(b, sorted[1], dim, at)};
}

Rule median_along(bool ignore_nan) {
  return [ignore_nan](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    Value x = at_least_1d(b, args.tensor(0));
    if (x.numel() == 0) return {b.zeros(c.out(0)), b.zeros(c.out(1))};
    Values found = median_dim(c, x, wrap_dim(args.integer(1), x.rank()), ignore_nan);
    return pair(c, found[0], found[1]);
  };
}

Rule median_all(bool ignore_nan) {
  return [ignore_nan](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    Value x = args.tensor(0);
    // Of nothing: NaN, and what the CPU's conversion of NaN gives for integers, the smallest value.
    if (x.numel() == 0) return {is_float(x.dtype()) ? b.constant(c.out(), std::nan("")) : b.min_value(c.out())};
    Values found = median_dim(c, b.reshape(x, {x.numel()}), 0, ignore_nan);
    return {b.reshape(found[0], c.out().shape)};
  };
}

// mode(self, dim, keepdim): the smallest of the most frequent values, at its last position.
Values mode(Context& c, const Args& args) {
  Builder& b = c.b;
  Value x = at_least_1d(b, args.tensor(0));
  int64_t dim = wrap_dim(args.integer_or(1, -1), x.rank()), n = x.dim(dim);
  if (x.numel() == 0) return {b.zeros(c.out(0)), b.zeros(c.out(1))};
  Values sorted = sort_dim(c, x, dim, /*descending=*/false);
  DType dtype = position_dtype(n);
  Value position = b.iota({dtype, x.shape()}, dim), zero = b.zeros(position.type());
  Value start = zero;
  if (n > 1) {
    Value changed = b.ne(b.slice_dim(sorted[0], dim, 1, n), b.slice_dim(sorted[0], dim, 0, n - 1));
    Dims low(x.rank(), 0), high(x.rank(), 0);
    low[dim] = 1;
    changed = b.pad(changed, b.zeros({DType::kBool, {}}), low, high);
    start = scan(c, {{b, b.select(changed, position, zero)}}, {b.scalar_int(dtype, 0)}, dim,
                 [](const Exprs& x, const Exprs& y) -> Exprs { return {max(x[0], y[0])}; })[0];
  }
  // The longest run, the first one on ties, is where position - start is largest; that place is the run's end.
  Value length = b.sub(position, start);
  auto longer = [](Builder& rb, const Values& v) -> Values {
    Value better = rb.gt(v[2], v[0]);
    better = rb.logical_or(better, rb.logical_and(rb.eq(v[2], v[0]), rb.lt(v[3], v[1])));
    return {rb.select(better, v[2], v[0]), rb.select(better, v[3], v[1])};
  };
  Values inits = {b.scalar_int(dtype, -1), b.scalar_int(dtype, n - 1)};
  Value end = b.unsqueeze(b.reduce({length, position}, inits, {dim}, longer)[1], dim);
  return pair(c, gather_dim(b, sorted[0], dim, end), gather_dim(b, sorted[1], dim, end));
}

// Whether `element` of the sorted sequence lies before `value`'s place. NaN as value goes last, as on CPU.
Value lies_before(Builder& b, Value element, Value value, bool right) {
  return b.logical_not(right ? b.gt(element, value) : b.ge(element, value));
}

// Few elements: every value is compared with every element, which fuses into one loop.
Value search_by_counting(Builder& b, Value sorted, Value values, bool right) {
  Shape shape = values.shape();
  shape.push_back(sorted.dim(-1));
  Dims leading(values.rank());
  for (int64_t i = 0; i < values.rank(); ++i) leading[i] = i;
  Value value = b.broadcast_in_dim(values, shape, leading);
  Dims dims;
  for (int64_t i = 0; i + 1 < sorted.rank(); ++i) dims.push_back(i);
  dims.push_back(static_cast<int64_t>(shape.size()) - 1);
  Value element = b.broadcast_in_dim(sorted, shape, dims);
  Value before = b.convert(lies_before(b, element, value, right), DType::kI64);
  return b.reduce_sum(before, {static_cast<int64_t>(shape.size()) - 1});
}

Value search_by_halving(Builder& b, Value sorted, Value values, bool right) {
  int64_t n = sorted.dim(-1), steps = 1;
  while ((int64_t{1} << steps) <= n) ++steps;
  DType dtype = position_dtype(n);
  Type type{dtype, values.shape()};
  Value counter = b.scalar_int(DType::kI32, 0);
  auto condition = [steps](Builder& rb, const Values& v) -> Values {
    return {rb.lt(v[0], rb.scalar_int(DType::kI32, steps))};
  };
  auto body = [&](Builder& rb, const Values& v) -> Values {
    Value open = rb.lt(v[1], v[2]);
    Value middle = rb.div(rb.add(v[1], v[2]), rb.constant_int(type, 2));
    Value at = rb.clamp(rb.scalar_int(dtype, 0), middle, rb.scalar_int(dtype, n - 1));
    Value element = sorted.rank() == 1 ? take_flat(rb, sorted, at) : gather_dim(rb, sorted, sorted.rank() - 1, at);
    Value before = lies_before(rb, element, values, right);
    Value low = rb.select(rb.logical_and(open, before), rb.add(middle, rb.constant_int(type, 1)), v[1]);
    Value high = rb.select(rb.logical_and(open, rb.logical_not(before)), middle, v[2]);
    return {rb.add(v[0], rb.scalar_int(DType::kI32, 1)), low, high};
  };
  Values found = b.while_loop({counter, b.zeros(type), b.constant_int(type, n)}, condition, body);
  return b.convert(found[1], DType::kI64);
}

struct Search {
  Value sorted, values;
  DType dtype;  // common dtype of both
  bool right;
};

Values search(Context& c, const Search& s) {
  Builder& b = c.b;
  if (element_count(c.out().shape) == 0) return {b.zeros(c.out())};
  Value values = b.convert(s.values, s.dtype), sorted = b.convert(s.sorted, s.dtype);
  // A 0-d value searches as one element; with batched sequences it has their leading dimensions already.
  if (values.rank() == 0 && sorted.rank() > 0) values = b.reshape(values, {1});
  return {b.reshape(b.convert(search_sorted(b, sorted, values, s.right), c.out().dtype), c.out().shape)};
}

// searchsorted(sorted_sequence, self, out_int32, right, side, sorter); self is a Tensor or a Scalar
Rule searchsorted(bool scalar) {
  return [scalar](Context& c, const Args& args) -> Values {
    Builder& b = c.b;
    Value sorted = args.tensor(0), sorter = args.tensor(5);
    if (sorter && sorted.numel() > 0) {
      int64_t last = sorted.rank() - 1;
      sorter = checked_index(c, sorter, sorted.dim(last), /*wrap=*/false, Access::kRead);
      sorted = gather_dim(b, sorted, last, sorter);
    }
    bool right = args.flag_or(3, false) || args.string_or(4, "left") == "right";
    return search(c, {sorted, scalar ? args.scalar(1) : args.tensor(1), result_type(args, {0, 1}), right});
  };
}

// bucketize(self, boundaries, out_int32, right)
Rule bucketize(bool scalar) {
  return [scalar](Context& c, const Args& args) -> Values {
    Value values = scalar ? args.scalar(0) : args.tensor(0);
    return search(c, {args.tensor(1), values, result_type(args, {0, 1}), args.flag_or(3, false)});
  };
}

// Above this many comparisons membership is decided by sorting the test elements and searching them.
constexpr int64_t kDirectComparisons = int64_t{1} << 20;

// isin(elements, test_elements, assume_unique, invert); either may be a Scalar
Values isin(Context& c, const Args& args) {
  Builder& b = c.b;
  DType dtype = result_type(args, {0, 1});
  auto flat = [&](size_t i) {
    Value x = args.at(i).kind == Arg::Kind::kScalar ? args.scalar(i) : args.tensor(i);
    return b.reshape(b.convert(x, dtype), {x.numel()});
  };
  Value elements = flat(0), tests = flat(1), found;
  int64_t n = elements.dim(0), m = tests.dim(0);
  if (n == 0) return {b.zeros(c.out())};
  if (m == 0) {
    found = b.zeros({DType::kBool, {n}});
  } else if (m <= 32 || n * m <= kDirectComparisons || is_complex(dtype) || is_bool(dtype)) {
    Value equal = b.eq(b.broadcast_in_dim(elements, {n, m}, {0}), b.broadcast_in_dim(tests, {n, m}, {1}));
    found = b.reduce(equal, b.zeros({DType::kBool, {}}), {1}, "or");
  } else {
    Value sorted = sort_dim(c, tests, 0, /*descending=*/false)[0];
    Value at = search_sorted(b, sorted, elements, /*right=*/false);
    at = b.clamp(b.scalar_int(DType::kI64, 0), at, b.scalar_int(DType::kI64, m - 1));
    found = b.eq(take_flat(b, sorted, at), elements);
  }
  if (args.flag_or(3, false)) found = b.logical_not(found);
  return {b.reshape(found, c.out().shape)};
}

}  // namespace

Value search_sorted(Builder& b, Value sorted, Value values, bool right) {
  int64_t n = sorted.dim(-1);
  if (n == 0 || values.numel() == 0) return b.zeros({DType::kI64, values.shape()});
  return n <= 32 ? search_by_counting(b, sorted, values, right) : search_by_halving(b, sorted, values, right);
}

void add_order_rows(Rows& rows) {
  rows.push_back(Row{"aten::sort.stable", sort_stable});
  rows.push_back(Row{"aten::topk", topk});
  rows.push_back(Row{"aten::kthvalue", kthvalue});
  rows.push_back(Row{"aten::median", median_all(false)});
  rows.push_back(Row{"aten::nanmedian", median_all(true)});
  rows.push_back(Row{"aten::median.dim", median_along(false)});
  rows.push_back(Row{"aten::nanmedian.dim", median_along(true)});
  rows.push_back(Row{"aten::mode", mode});
  rows.push_back(Row{"aten::searchsorted.Tensor", searchsorted(false)}.as_indexing());
  rows.push_back(Row{"aten::searchsorted.Scalar", searchsorted(true)}.as_indexing());
  rows.push_back(Row{"aten::bucketize.Tensor", bucketize(false)});
  rows.push_back(Row{"aten::bucketize.Scalar", bucketize(true)});
  rows.push_back(Row{"aten::isin.Tensor_Tensor", isin});
  rows.push_back(Row{"aten::isin.Tensor_Scalar", isin});
  rows.push_back(Row{"aten::isin.Scalar_Tensor", isin});
}

}  // namespace torch_tpu::ops
