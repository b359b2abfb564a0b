// grid_sampler_2d / 3d and their backwards. A sample point has a few taps per dimension; each combination of taps is
// one gather of all points and channels, the gradient of the input one scatter of all combinations.
//
// Grid coordinates are in [-1, 1] over the input's extent; the last dimension of the grid lists x (width) first.
#include <algorithm>
#include <array>

#include "ops/promote.h"
#include "ops/resampling.h"

namespace torch_tpu::ops {
namespace {

enum Interpolate : int64_t { kBilinear = 0, kNearest = 1, kBicubic = 2 };
enum Padding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

// A value and its derivative by the grid coordinate.
struct Dual {
  Value value, slope;
};

struct TapValue {
  Value position;       // i32 [N, P], clamped into the input
  Value inside;         // bool: the tap lies in the input
  Value weight, slope;  // slope: d weight / d grid coordinate; absent where it is zero
};

// Coordinate arithmetic of one dimension.
class AxisMap {
 public:
  AxisMap(Builder& b, int64_t size, bool align_corners, int64_t padding)
      : b_(b), size_(size), align_corners_(align_corners), padding_(padding) {}

  // Grid coordinate -> input coordinate.
  Dual unnormalized(Value x) const {
    Value one = b_.full_like(x, 1), half = b_.full_like(x, 0.5);
    auto size = static_cast<double>(size_);
    if (align_corners_) {
      Value value = b_.mul(b_.mul(b_.add(x, one), half), b_.full_like(x, size - 1));
      return {value, b_.full_like(x, (size - 1) / 2)};
    }
    Value value = b_.mul(b_.sub(b_.mul(b_.add(x, one), b_.full_like(x, size)), one), half);
    return {value, b_.full_like(x, size / 2)};
  }

  // Applies the padding mode to a coordinate.
  Dual padded(Dual x) const {
    if (padding_ == kZeros) return x;
    if (padding_ == kReflection) x = reflected(x);
    return clipped(x);
  }

 private:
  Dual clipped(Dual x) const {
    Value low = b_.full_like(x.value, 0), high = b_.full_like(x.value, static_cast<double>(size_ - 1));
    Value within = b_.logical_and(b_.gt(x.value, low), b_.lt(x.value, high));
    Value slope = b_.select(within, x.slope, b_.zeros(x.slope.type()));
    return {b_.min(high, b_.max(low, x.value)), slope};
  }

  Dual reflected(Dual x) const {
    double low = align_corners_ ? 0.0 : -0.5;
    double span = align_corners_ ? static_cast<double>(size_ - 1) : static_cast<double>(size_);
    if (span == 0) return {b_.zeros(x.value.type()), b_.zeros(x.slope.type())};
    Value origin = b_.full_like(x.value, low), length = b_.full_like(x.value, span);
    Value zero = b_.zeros(x.value.type()), shifted = b_.sub(x.value, origin);
    Value distance = b_.abs(shifted);
    Value slope = b_.select(b_.lt(shifted, zero), b_.neg(x.slope), x.slope);
    Value rest = b_.rem(distance, length), flips = b_.floor(b_.div(distance, length));
    Value odd = b_.ne(b_.rem(flips, b_.full_like(flips, 2)), zero);
    Value value = b_.add(b_.select(odd, b_.sub(length, rest), rest), origin);
    return {value, b_.select(odd, b_.neg(slope), slope)};
  }

  Builder& b_;
  int64_t size_;
  bool align_corners_;
  int64_t padding_;
};

// A tap at a whole coordinate given as a float.
TapValue tap_at(Builder& b, Value coordinate, int64_t size, Value weight, Value slope) {
  auto last = static_cast<double>(size - 1);
  Value low = b.full_like(coordinate, 0), high = b.full_like(coordinate, last);
  Value inside = b.logical_and(b.ge(coordinate, low), b.le(coordinate, high));
  Value position =
      b.convert(b.clamp(b.scalar(coordinate.dtype(), 0), coordinate, b.scalar(coordinate.dtype(), last)), DType::kI32);
  return {position, inside, weight, slope};
}

// The four weights of a cubic tap at distance t in [0, 1) past the second one, and their derivatives by t.
std::array<Dual, 4> cubic_weights(Builder& b, Value t) {
  auto constant = [&](double v) { return b.full_like(t, v); };
  auto polynomial = [&](Value x, double c3, double c2, double c1, double c0) {
    Value value = b.add(b.mul(constant(c3), x), constant(c2));
    value = b.add(b.mul(value, x), constant(c1));
    return b.add(b.mul(value, x), constant(c0));
  };
  constexpr double kA = -0.75;
  auto near = [&](Value x) { return polynomial(x, kA + 2, -(kA + 3), 0, 1); };
  auto near_slope = [&](Value x) { return polynomial(x, 0, 3 * (kA + 2), -2 * (kA + 3), 0); };
  auto far = [&](Value x) { return polynomial(x, kA, -5 * kA, 8 * kA, -4 * kA); };
  auto far_slope = [&](Value x) { return polynomial(x, 0, 3 * kA, -10 * kA, 8 * kA); };
  Value one = constant(1), u = b.sub(one, t);
  return {Dual{far(b.add(t, one)), far_slope(b.add(t, one))}, Dual{near(t), near_slope(t)},
          Dual{near(u), b.neg(near_slope(u))}, Dual{far(b.add(u, one)), b.neg(far_slope(b.add(u, one)))}};
}

std::vector<TapValue> taps_of(Builder& b, Value grid, int64_t size, int64_t mode, const AxisMap& map) {
  Dual x = map.unnormalized(grid);
  Value one = b.full_like(grid, 1);
  if (mode == kBicubic) {
    Value low = b.floor(x.value);
    std::array<Dual, 4> weights = cubic_weights(b, b.sub(x.value, low));
    std::vector<TapValue> taps;
    for (int k = 0; k < 4; ++k) {
      Value at = map.padded({b.add(low, b.full_like(low, k - 1)), b.zeros(low.type())}).value;
      taps.push_back(tap_at(b, at, size, weights[k].value, b.mul(weights[k].slope, x.slope)));
    }
    return taps;
  }
  x = map.padded(x);
  if (mode == kNearest) return {tap_at(b, b.unary("round_nearest_even", x.value), size, one, Value())};
  Value low = b.floor(x.value), weight = b.sub(x.value, low);
  return {tap_at(b, low, size, b.sub(one, weight), b.neg(x.slope)), tap_at(b, b.add(low, one), size, weight, x.slope)};
}

// All combinations of taps, one per dimension.
class Sampler {
 public:
  // input [N, C, spatial...], grid [N, points..., spatial rank]
  Sampler(Builder& b, Value input, Value grid, int64_t mode, int64_t padding, bool align_corners)
      : b_(b), input_(input), dims_(input.rank() - 2), batch_(input.dim(0)) {
    points_ = grid.numel() / std::max<int64_t>(1, batch_ * dims_);
    grid = b.reshape(grid, {batch_, points_, dims_});
    for (int64_t i = 0; i < dims_; ++i) {
      int64_t column = dims_ - 1 - i, size = input.dim(2 + i);
      Value x = b.reshape(b.slice_dim(grid, 2, column, column + 1), {batch_, points_});
      taps_.push_back(taps_of(b, x, size, mode, AxisMap(b, size, align_corners, padding)));
    }
    combinations_ = 1;
    for (const auto& taps : taps_) combinations_ *= static_cast<int64_t>(taps.size());
  }

  int64_t combinations() const { return combinations_; }
  int64_t points() const { return points_; }
  int64_t dims() const { return dims_; }

  const TapValue& tap(int64_t combination, int64_t dim) const {
    for (int64_t i = dims_ - 1; i > dim; --i) combination /= static_cast<int64_t>(taps_[i].size());
    return taps_[dim][combination % static_cast<int64_t>(taps_[dim].size())];
  }

  // Product of the weights; with `dim` >= 0 that dimension's slope in place of its weight (absent where zero).
  Value weight(int64_t combination, int64_t dim = -1) const {
    Value product;
    for (int64_t i = 0; i < dims_; ++i) {
      const TapValue& t = tap(combination, i);
      Value factor = i == dim ? t.slope : t.weight;
      if (!factor) return Value();
      product = product ? b_.mul(product, factor) : factor;
    }
    return product;
  }

  Value inside(int64_t combination) const {
    Value all = tap(combination, 0).inside;
    for (int64_t i = 1; i < dims_; ++i) all = b_.logical_and(all, tap(combination, i).inside);
    return all;
  }

  // [N, P, dims]; positions outside become -1 when `drop`.
  Value positions(int64_t combination, bool drop) const {
    Values columns;
    Value in = inside(combination);
    for (int64_t i = 0; i < dims_; ++i) {
      Value p = tap(combination, i).position;
      if (drop) p = b_.select(in, p, b_.constant_int(p.type(), -1));
      columns.push_back(b_.unsqueeze(p, 2));
    }
    return b_.concatenate(columns, 2);
  }

  // Input at the taps, zero outside: [N, C, P].
  Value values(int64_t combination) const {
    hlo::GatherDims dims;
    dims.operand_batching_dims = dims.start_indices_batching_dims = {0};
    dims.offset_dims = {1};
    dims.slice_sizes = {1, input_.dim(1)};
    for (int64_t i = 0; i < dims_; ++i) {
      dims.collapsed_slice_dims.push_back(2 + i);
      dims.slice_sizes.push_back(1);
    }
    dims.start_index_map = dims.collapsed_slice_dims;
    dims.index_vector_dim = 2;
    Value taken = b_.gather(input_, positions(combination, false), dims);
    return b_.select(wide(inside(combination)), taken, b_.zeros(taken.type()));
  }

  // [N, P] -> [N, C, P]
  Value wide(Value x) const { return b_.broadcast_in_dim(x, {batch_, input_.dim(1), points_}, {0, 2}); }

  // Adds updates [N, C, P] of every combination into zeros of the input's shape.
  Value scatter(Value grad) const {
    Values positions_of_all, updates;
    for (int64_t k = 0; k < combinations_; ++k) {
      positions_of_all.push_back(positions(k, true));
      updates.push_back(b_.mul(grad, wide(weight(k))));
    }
    hlo::ScatterDims dims;
    dims.input_batching_dims = dims.scatter_indices_batching_dims = {0};
    dims.update_window_dims = {1};
    for (int64_t i = 0; i < dims_; ++i) dims.inserted_window_dims.push_back(2 + i);
    dims.scatter_dims_to_operand_dims = dims.inserted_window_dims;
    dims.index_vector_dim = 2;
    auto add = [](Builder& rb, const Values& v) -> Values { return {rb.add(v[0], v[1])}; };
    return b_.scatter(b_.zeros(input_.type()), b_.concatenate(positions_of_all, 1), b_.concatenate(updates, 2), dims,
                      add);
  }

 private:
  Builder& b_;
  Value input_;
  int64_t dims_, batch_, points_ = 0, combinations_ = 0;
  std::vector<std::vector<TapValue>> taps_;
};

// grid_sampler_Nd(input, grid, interpolation_mode, padding_mode, align_corners)
Values grid_sampler(Context& c, const Args& args) {
  Builder& b = c.b;
  const Type& out = c.out();
  if (element_count(out.shape) == 0 || args.tensor(0).numel() == 0) return {b.zeros(out)};
  DType dtype = compute_dtype(out.dtype);
  Value input = b.convert(args.tensor(0), dtype), grid = b.convert(args.tensor(1), dtype), sum;
  Sampler sampler(b, input, grid, args.integer(2), args.integer(3), args.flag(4));
  for (int64_t k = 0; k < sampler.combinations(); ++k) {
    Value term = b.mul(sampler.values(k), sampler.wide(sampler.weight(k)));
    sum = sum ? b.add(sum, term) : term;
  }
  return {b.reshape(b.convert(sum, out.dtype), out.shape)};
}

Value grid_gradient(Builder& b, const Sampler& sampler, Value grad, const Type& out) {
  Values columns(sampler.dims());
  for (int64_t i = 0; i < sampler.dims(); ++i) {
    Value sum;
    for (int64_t k = 0; k < sampler.combinations(); ++k) {
      Value slope = sampler.weight(k, i);
      if (!slope) continue;
      Value term = b.mul(b.reduce_sum(b.mul(grad, sampler.values(k)), {1}), slope);
      sum = sum ? b.add(sum, term) : term;
    }
    if (!sum) return b.zeros(out);
    columns[sampler.dims() - 1 - i] = b.unsqueeze(sum, 2);
  }
  return b.reshape(b.convert(b.concatenate(columns, 2), out.dtype), out.shape);
}

// grid_sampler_Nd_backward(grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask)
Values grid_sampler_backward(Context& c, const Args& args) {
  Builder& b = c.b;
  Values results(2);
  bool wanted[2] = {c.out(0).dtype != DType::kInvalid, c.out(1).dtype != DType::kInvalid};
  if (args.tensor(0).numel() == 0 || args.tensor(1).numel() == 0) {
    for (int i = 0; i < 2; ++i) results[i] = wanted[i] ? b.zeros(c.out(i)) : Value();
    return results;
  }
  DType dtype = compute_dtype(args.tensor(1).dtype());
  Value input = b.convert(args.tensor(1), dtype), grid = b.convert(args.tensor(2), dtype);
  Sampler sampler(b, input, grid, args.integer(3), args.integer(4), args.flag(5));
  Value grad = b.reshape(b.convert(args.tensor(0), dtype), {input.dim(0), input.dim(1), sampler.points()});
  if (wanted[0]) results[0] = b.convert(sampler.scatter(grad), c.out(0).dtype);
  if (wanted[1]) results[1] = grid_gradient(b, sampler, grad, c.out(1));
  return results;
}

}  // namespace

void add_grid_sampler_rows(Rows& rows) {
  for (const char* name : {"aten::grid_sampler_2d", "aten::grid_sampler_3d"}) {
    rows.push_back(Row{name, grid_sampler});
    rows.push_back(Row{std::string(name) + "_backward", grid_sampler_backward});
  }
}

}  // namespace torch_tpu::ops
