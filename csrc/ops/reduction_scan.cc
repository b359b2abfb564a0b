// Scans: cumsum, cumprod, cummax, cummin, logcumsumexp.
#include <algorithm>
#include <limits>

#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

// Below this many elements a scan is a chain of fused steps; above, XLA:CPU spends its time on them (a cumsum of 2^20
// elements took 145 ms by doubling and takes 2 by rows).
constexpr int64_t kStepwiseElements = 4096;
// Rows this long hide what an iteration of a loop costs.
constexpr int64_t kRowElements = 1024;

// x moved `distance` places towards the end of dim; the places that become free hold `identity`.
Value delayed(hlo::Builder& b, Value x, Value identity, int64_t dim, int64_t distance) {
  Dims low(x.rank(), 0), high(x.rank(), 0);
  low[dim] = distance;
  high[dim] = -distance;
  return b.pad(x, identity, low, high);
}

struct Scan {
  const Values& identities;
  const ScanBody& combine;

  // Combines values at distance 1, 2, 4, ...: log2(size) steps.
  Exprs by_doubling(Exprs xs, int64_t dim) const;
  // Cuts dim into blocks, scans all blocks side by side with a loop, then adds what came before each block.
  Exprs by_rows(Context& c, Exprs xs, int64_t dim) const;
  // Scans dimension 0 with a loop; the last row is the carry at the end.
  Exprs by_loop(const Exprs& xs) const;
};

Exprs Scan::by_doubling(Exprs xs, int64_t dim) const {
  hlo::Builder& b = xs[0].b();
  const int64_t size = xs[0].value().dim(dim);
  for (int64_t distance = 1; distance < size; distance *= 2) {
    Exprs earlier;
    for (size_t i = 0; i < xs.size(); ++i) earlier.push_back({b, delayed(b, xs[i], identities[i], dim, distance)});
    xs = combine(earlier, xs);
  }
  return xs;
}

Exprs Scan::by_loop(const Exprs& xs) const {
  hlo::Builder& b = xs[0].b();
  const size_t n = xs.size();
  const Shape shape = xs[0].value().shape();
  const int64_t rows = shape[0];
  Shape row = shape;
  row[0] = 1;
  Values state = {b.scalar_int(DType::kI32, 0)};
  for (size_t i = 0; i < n; ++i) state.push_back(b.broadcast(identities[i], row));
  for (size_t i = 0; i < n; ++i) state.push_back(b.zeros_like(xs[i]));
  Values end = b.while_loop(
      state, [&](hlo::Builder& b, const Values& v) -> Values { return {b.lt(v[0], b.scalar_int(DType::kI32, rows))}; },
      [&](hlo::Builder& b, const Values& v) -> Values {
        Values at(shape.size(), b.scalar_int(DType::kI32, 0));
        at[0] = v[0];
        Exprs carry, current;
        for (size_t i = 0; i < n; ++i) {
          carry.push_back({b, v[1 + i]});
          current.push_back({b, b.dynamic_slice(xs[i], at, row)});
        }
        Exprs next = combine(carry, current);
        Values out = {b.add(v[0], b.scalar_int(DType::kI32, 1))};
        for (const Expr& x : next) out.push_back(x);
        for (size_t i = 0; i < n; ++i) out.push_back(b.dynamic_update_slice(v[1 + n + i], next[i], at));
        return out;
      });
  Exprs result;
  for (size_t i = 0; i < n; ++i) result.push_back({b, end[1 + n + i]});
  return result;
}

Exprs Scan::by_rows(Context& c, Exprs xs, int64_t dim) const {
  hlo::Builder& b = c.b;
  const Shape shape = xs[0].value().shape();
  const int64_t size = shape[dim], others = element_count(shape) / size;
  Dims to_front = {dim};
  for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i) {
    if (i != dim) to_front.push_back(i);
  }
  Dims back(to_front.size());
  for (size_t i = 0; i < to_front.size(); ++i) back[to_front[i]] = static_cast<int64_t>(i);
  // Blocks of `length` consecutive elements; a row of the loop takes one element of every block and of every other
  // index.
  const int64_t length =
      std::clamp<int64_t>((size * others + kRowElements - 1) / kRowElements, std::min<int64_t>(size, 16), size);
  const int64_t blocks = (size + length - 1) / length;
  Exprs rows;
  for (size_t i = 0; i < xs.size(); ++i) {
    Value x = b.reshape(b.transpose(xs[i], to_front), {size, others});
    x = b.pad(x, identities[i], {0, 0}, {blocks * length - size, 0});
    rows.push_back({b, b.transpose(b.reshape(x, {blocks, length, others}), {1, 0, 2})});
  }
  rows = by_loop(rows);
  if (blocks > 1) {
    Exprs totals;
    for (const Expr& x : rows)
      totals.push_back({b, b.reshape(b.slice_dim(x, 0, length - 1, length), {blocks, others})});
    totals = scan(c, totals, identities, 0, combine);
    Exprs before;
    for (size_t i = 0; i < rows.size(); ++i) {
      Value shifted = delayed(b, totals[i], identities[i], 0, 1);
      before.push_back({b, b.broadcast_in_dim(shifted, {length, blocks, others}, {1, 2})});
    }
    rows = combine(before, rows);
  }
  Exprs result;
  for (size_t i = 0; i < xs.size(); ++i) {
    Value x = b.reshape(b.transpose(rows[i], {1, 0, 2}), {blocks * length, others});
    Shape front;
    for (int64_t d : to_front) front.push_back(shape[d]);
    x = b.reshape(b.slice_dim(x, 0, 0, size), front);
    result.push_back({b, b.transpose(x, back)});
  }
  return result;
}

using ScanRuleBody = std::function<Expr(Context& c, Expr x, int64_t dim)>;

// The dtype a running sum or product is kept in. PyTorch's CPU kernels keep floats in double, and a million factors
// show it; a TPU emulates f64, so there it is the compute dtype, as on other accelerators.
DType scan_dtype(const Context& c) {
  const DType dtype = compute_dtype(c.out().dtype);
  if (c.platform != Platform::kCpu) return dtype;
  return dtype == DType::kF32 ? DType::kF64 : dtype == DType::kC64 ? DType::kC128 : dtype;
}

// Argument 0 scanned along argument 1.
Rule scan_rule(ScanRuleBody body) {
  return [body = std::move(body)](Context& c, const Args& args) -> Values {
    Expr x{c.b, c.b.convert(args.tensor(0), scan_dtype(c))};
    const bool trivial = x.value().rank() == 0 || x.value().numel() == 0;
    return {finish(c, trivial ? x : body(c, x, wrap_dim(args.integer(1), x.value().rank())))};
  };
}

Expr running_product(Context& c, Expr x, int64_t dim) {
  return scan(c, {x}, {x.b().scalar_int(x.dtype(), 1)}, dim,
              [](const Exprs& a, const Exprs& b) -> Exprs { return {a[0] * b[0]}; })[0];
}

Expr log_add_exp(Expr x, Expr y) {
  const double inf = std::numeric_limits<double>::infinity();
  if (is_complex(x.dtype())) {
    Expr swap = real(x) < real(y);
    Expr large = select(swap, y, x), small = select(swap, x, y);
    return select(real(large) == -inf, large, large + log(1.0 + exp(small - large)));
  }
  Expr large = max(x, y), small = min(x, y);
  return select((x == y) & (abs(x) == inf), x, large + log1p(exp(small - large)));
}

Expr running_log_sum(Context& c, Expr x, int64_t dim) {
  const double inf = std::numeric_limits<double>::infinity();
  Value identity =
      is_complex(x.dtype()) ? x.b().constant_complex({x.dtype(), {}}, {-inf, 0}) : x.b().scalar(x.dtype(), -inf);
  return scan(c, {x}, {identity}, dim,
              [](const Exprs& a, const Exprs& b) -> Exprs { return {log_add_exp(a[0], b[0])}; })[0];
}

// The latest extreme so far and its position: equal values and NaN move the position on.
Values running_extreme(Context& c, const Args& args, int dim_position, bool greatest) {
  Value x = args.tensor(0);
  const Type index{DType::kI64, x.shape()};
  if (x.rank() == 0 || x.numel() == 0) return {x, c.b.zeros(index)};
  const int64_t dim = wrap_dim(args.integer(dim_position), x.rank());
  // An identity for pairs is the worst value at a position that loses every tie: ties go to the later operand.
  Value worst = greatest ? c.b.min_value({x.dtype(), {}}) : c.b.max_value({x.dtype(), {}});
  Exprs result = scan(c, {{c.b, x}, {c.b, c.b.iota(index, dim)}}, {worst, c.b.scalar_int(DType::kI64, 0)}, dim,
                      [greatest](const Exprs& a, const Exprs& b) -> Exprs {
                        Expr later = greatest ? b[0] >= a[0] : b[0] <= a[0];
                        if (is_float(a[0].dtype())) later = is_nan(b[0]) | ((!is_nan(a[0])) & later);
                        return {select(later, b[0], a[0]), select(later, b[1], a[1])};
                      });
  return {result[0], result[1]};
}

Rule extreme_rule(int dim_position, bool greatest) {
  return [=](Context& c, const Args& args) { return running_extreme(c, args, dim_position, greatest); };
}

}  // namespace

Exprs scan(Context& c, Exprs xs, const Values& identities, int64_t dim, const ScanBody& combine) {
  // Small scans, and all of them on a TPU, whose vector unit takes whole rows per step.
  const Shape& shape = xs[0].value().shape();
  const bool stepwise = c.platform == Platform::kTpu || shape[dim] <= 16 || element_count(shape) <= kStepwiseElements;
  const Scan parts{identities, combine};
  return stepwise ? parts.by_doubling(std::move(xs), dim) : parts.by_rows(c, std::move(xs), dim);
}

Expr running_sum(Context& c, Expr x, int64_t dim) {
  return scan(c, {x}, {x.b().scalar_int(x.dtype(), 0)}, dim,
              [](const Exprs& a, const Exprs& b) -> Exprs { return {a[0] + b[0]}; })[0];
}

void add_scan_rows(Rows& rows) {
  rows.insert(rows.end(), {
                              {"aten::cumsum", scan_rule(running_sum)},
                              {"aten::cumprod", scan_rule(running_product)},
                              {"aten::logcumsumexp", scan_rule(running_log_sum)},
                              {"aten::cummax", extreme_rule(1, true)},
                              {"aten::cummin", extreme_rule(1, false)},
                              {"aten::_cummax_helper", extreme_rule(3, true)},
                              {"aten::_cummin_helper", extreme_rule(3, false)},
                          });
}

}  // namespace torch_tpu::ops
