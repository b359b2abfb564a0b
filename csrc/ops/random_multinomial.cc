// multinomial: draws categories by weight, with or without replacement. A category of weight zero is never drawn.
#include <algorithm>
#include <limits>

#include "ops/random.h"
#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

// Open-interval uniforms of shape [rows, categories]. The call reserves one block per result, `samples` per row; a row
// reads its first block only, with the category in the draw: lane j % 4 of draw j / 4 (f64: two draws).
Expr uniform_per_category(Context& c, int64_t rows, int64_t categories, int64_t samples, DType dtype) {
  hlo::Builder& b = c.b;
  const int64_t groups = (categories + 3) / 4;
  const Shape shape = {rows, groups};
  Expr row{b, b.iota({DType::kU64, shape}, 0)}, group{b, b.iota({DType::kU32, shape}, 1)};
  Expr offset{b, b.broadcast(b.reshape(b.slice(c.rng_state, {1}, {2}), {}), shape)};
  Expr counter = offset + row * static_cast<double>(samples);
  Expr draw = dtype == DType::kF64 ? group * 2 : group;
  Lanes lanes = philox(c, counter, draw, c.rng_state);
  if (dtype == DType::kF64) {
    Lanes low = philox(c, counter, draw + 1, c.rng_state);
    for (size_t i = 0; i < lanes.size(); ++i) lanes[i] = join_words(lanes[i], low[i]);
  }
  Values columns;
  for (const Expr& lane : lanes) columns.push_back(b.reshape(lane, {rows, groups, 1}));
  Value words = b.reshape(b.concatenate(columns, 2), {rows, 4 * groups});
  return open_unit_interval({b, b.slice(words, {0, 0}, {rows, categories})}, dtype);
}

// The order of weight / exponential is that of drawing one by one without putting back (Efraimidis and Spirakis, 2006).
Value without_replacement(Context& c, Expr weights, int64_t samples) {
  const int64_t rows = weights.value().dim(0), categories = weights.value().dim(1);
  Expr race = weights / -log(uniform_per_category(c, rows, categories, samples, weights.dtype()));
  race = select(weights > 0, race, -1.0);
  if (samples == 1) return first_position(race, largest(race, {1}), 1);
  return c.b.top_k(race, samples)[1];
}

// How many of its row's sorted `ends` each number reaches, by bisection; at most all but one.
Value count_reached(Expr ends, Expr number) {
  hlo::Builder& b = ends.b();
  const int64_t rows = ends.value().dim(0), categories = ends.value().dim(1);
  const Shape shape = number.value().shape();
  Value flat = b.reshape(ends, {rows * categories});
  Expr row_start = Expr{b, b.iota({DType::kI64, shape}, 0)} * static_cast<double>(categories);
  int64_t stride = 1;
  while (2 * stride < categories) stride *= 2;
  hlo::GatherDims dims;
  dims.collapsed_slice_dims = {0};
  dims.start_index_map = {0};
  dims.index_vector_dim = 2;
  dims.slice_sizes = {1};
  Values end = b.while_loop(
      {b.scalar_int(DType::kI64, stride), b.zeros({DType::kI64, shape})},
      [](hlo::Builder& b, const Values& v) -> Values { return {b.gt(v[0], b.scalar_int(DType::kI64, 0))}; },
      [&](hlo::Builder& b, const Values& v) -> Values {
        Expr step{b, v[0]}, found{b, v[1]};
        Expr candidate = found + Expr{b, b.broadcast(step, shape)};
        Expr allowed = candidate < static_cast<double>(categories);
        Expr index = row_start + select(allowed, candidate - 1, 0.0);
        Expr reached{b, b.gather(flat, b.reshape(index, {shape[0], shape[1], 1}), dims)};
        return {b.div(step, b.scalar_int(DType::kI64, 2)), select(allowed & (reached <= number), candidate, found)};
      });
  return end[1];
}

// Counts the cumulative weights that a random number reaches. The weights are scaled to integers: their running sums
// are exact in any order of addition, so a category of weight zero covers no number at all.
Value with_replacement(Context& c, Expr weights, int64_t samples) {
  hlo::Builder& b = c.b;
  const int64_t rows = weights.value().dim(0), categories = weights.value().dim(1);
  int bits = 62;
  for (int64_t n = 1; n < categories; n *= 2) --bits;
  bits = std::min(bits, 52);
  Expr top = spread(largest(weights, {1}), weights, {1});
  // An infinite or NaN weight leaves nothing to scale by; PyTorch refuses such weights where it can look at them.
  Expr share = select(weights > 0, weights / top, 0.0).to(DType::kF64) * std::ldexp(1.0, bits);
  Expr integer = select(weights > 0, max(share.to(DType::kU64), 1), 0.0);
  Expr ends = running_sum(c, integer, 1);
  Expr total{b, b.broadcast(b.slice_dim(ends, 1, categories - 1, categories), {rows, samples})};
  Random random(c, {rows, samples});
  Expr number = random.bits64(random.draw(0)) % max(total, 1);
  return count_reached(ends, number);
}

Values multinomial(Context& c, const Args& args) {
  Value weights = args.tensor(0);
  const int64_t samples = args.integer(1);
  if (weights.rank() == 1) weights = c.b.reshape(weights, {1, weights.dim(0)});
  if (element_count(c.out().shape) == 0) return {c.b.zeros(c.out())};
  Expr x{c.b, c.b.convert(weights, draw_dtype(weights.dtype()))};
  const bool replace = args.flag_or(2, false) && samples > 1;
  Value index = replace ? with_replacement(c, x, samples) : without_replacement(c, x, samples);
  return {finish(c, {c.b, index})};
}

}  // namespace

void add_multinomial_rows(Rows& rows) { rows.push_back({"aten::multinomial", multinomial}); }

}  // namespace torch_tpu::ops
