// Reductions of floats in a form that a host compiler vectorises. Measured on XLA:CPU: see docs in each function.
#include <algorithm>

#include "hlo/builder.h"

namespace torch_tpu::hlo {
namespace {

// A run of sums longer than this is cut in two stages: one accumulator per run adds one element at a time, which
// neither vectorises (float addition does not reorder) nor keeps its precision (a sum of 2^25 ones would stop at 2^24).
constexpr int64_t kLongestRun = 2048;
constexpr int64_t kSmallestLane = 64, kLargestLane = 1024;

int64_t lanes_for(int64_t size) {
  int64_t lanes = kSmallestLane;
  while (lanes < kLargestLane && lanes * lanes < size) lanes *= 2;
  return lanes;
}

}  // namespace

// Sums over `dims` of a float x, run of adjacent dims by run of adjacent dims from the last.
Value Builder::staged_sum(Value x, Dims dims) {
  const Value zero = constant_int({x.dtype(), {}}, 0);
  std::sort(dims.begin(), dims.end());
  while (!dims.empty()) {
    int64_t reduced = 1;
    for (int64_t dim : dims) reduced *= x.dim(dim);
    if (reduced <= kLongestRun) return reduce(x, zero, dims, "add");
    size_t first = dims.size() - 1;
    while (first > 0 && dims[first - 1] == dims[first] - 1) --first;
    const int64_t begin = dims[first], end = dims.back() + 1;
    int64_t run = 1;
    Shape shape(x.shape().begin(), x.shape().begin() + begin);
    for (int64_t i = begin; i < end; ++i) run *= x.dim(i);
    shape.push_back(run);
    shape.insert(shape.end(), x.shape().begin() + end, x.shape().end());
    x = reshape(x, shape);
    if (run > kLongestRun) {
      const int64_t lanes = lanes_for(run), rows = (run + lanes - 1) / lanes;
      Dims low(x.rank(), 0), high(x.rank(), 0);
      high[begin] = rows * lanes - run;
      if (high[begin] > 0) x = pad(x, zero, low, high);
      shape[begin] = rows;
      shape.insert(shape.begin() + begin + 1, lanes);
      // The barrier keeps the engine from folding the two reductions into one again.
      x = optimization_barrier({reduce(reshape(x, shape), zero, {begin}, "add")})[0];
    }
    x = reduce(x, zero, {begin}, "add");
    dims.resize(first);
    if (!dims.empty()) x = optimization_barrier({x})[0];
  }
  return x;
}

// Extremes of floats through integers of the same order: the bits of a positive float grow with it, those of a negative
// one shrink. A NaN becomes the extreme integer, which is a NaN again on the way back. Integer extremes vectorise,
// float ones that keep NaN do not (12 times slower for 1024 rows of 1024).
Value Builder::extreme_by_key(Value x, const Dims& dims, bool greatest) {
  const Value wide = convert(x, compute_dtype(x.dtype()));
  const bool is_double = wide.dtype() == DType::kF64;
  const DType integer = is_double ? DType::kI64 : DType::kI32;
  const Type type{integer, wide.shape()};
  auto ordered = [&](Value bits) {
    const Type t{integer, bits.shape()};
    const Value sign = shift_right_arithmetic(bits, constant_int(t, is_double ? 63 : 31));
    return logical_xor(bits, logical_and(sign, max_value(t)));
  };
  const Value worst = greatest ? min_value({integer, {}}) : max_value({integer, {}});
  const Value best = greatest ? max_value(type) : min_value(type);
  const Value key = select(is_nan(wide), best, ordered(bitcast(wide, type)));
  Value extreme = dims.empty() ? key : reduce(key, worst, dims, greatest ? "maximum" : "minimum");
  const Type result{wide.dtype(), extreme.shape()};
  Value back = bitcast(ordered(extreme), result);
  // Without elements the identity would be a NaN.
  for (int64_t dim : dims)
    if (x.dim(dim) == 0) back = greatest ? min_value(result) : max_value(result);
  return convert(back, x.dtype());
}

}  // namespace torch_tpu::hlo
