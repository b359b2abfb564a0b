// Scans: cumsum, cumprod, cummax, cummin, logcumsumexp.
#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

// x moved `distance` places towards the end of dim; the places that become free hold `identity`.
Value delayed(hlo::Builder& b, Value x, Value identity, int64_t dim, int64_t distance) {
  Dims low(x.rank(), 0), high(x.rank(), 0);
  low[dim] = distance;
  high[dim] = -distance;
  return b.pad(x, identity, low, high);
}

using ScanRuleBody = std::function<Expr(Expr x, int64_t dim)>;

// Argument 0 scanned along argument 1 in the dtype that the result computes in.
Rule scan_rule(ScanRuleBody body) {
  return [body = std::move(body)](Context& c, const Args& args) -> Values {
    Expr x{c.b, c.b.convert(args.tensor(0), compute_dtype(c.out().dtype))};
    const bool trivial = x.value().rank() == 0 || x.value().numel() == 0;
    return {finish(c, trivial ? x : body(x, wrap_dim(args.integer(1), x.value().rank())))};
  };
}

Expr running_product(Expr x, int64_t dim) {
  return scan({x}, {x.b().scalar_int(x.dtype(), 1)}, dim,
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

Expr running_log_sum(Expr x, int64_t dim) {
  const double inf = std::numeric_limits<double>::infinity();
  Value identity = is_complex(x.dtype()) ? x.b().constant_complex({x.dtype(), {}}, {-inf, 0}) : x.b().scalar(x.dtype(), -inf);
  return scan({x}, {identity}, dim, [](const Exprs& a, const Exprs& b) -> Exprs { return {log_add_exp(a[0], b[0])}; })[0];
}

// The latest extreme so far and its position: equal values and NaN move the position on.
Values running_extreme(Context& c, const Args& args, int dim_position, bool greatest) {
  Value x = args.tensor(0);
  const Type index{DType::kI64, x.shape()};
  if (x.rank() == 0 || x.numel() == 0) return {x, c.b.zeros(index)};
  const int64_t dim = wrap_dim(args.integer(dim_position), x.rank());
  // An identity for pairs is the worst value at a position that loses every tie: ties go to the later operand.
  Value worst = greatest ? c.b.min_value({x.dtype(), {}}) : c.b.max_value({x.dtype(), {}});
  Exprs result = scan({{c.b, x}, {c.b, c.b.iota(index, dim)}}, {worst, c.b.scalar_int(DType::kI64, 0)}, dim,
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

Exprs scan(Exprs xs, const std::vector<Value>& identities, int64_t dim, const ScanBody& combine) {
  hlo::Builder& b = xs[0].b();
  const int64_t size = xs[0].value().dim(dim);
  for (int64_t distance = 1; distance < size; distance *= 2) {
    Exprs earlier;
    for (size_t i = 0; i < xs.size(); ++i) earlier.push_back({b, delayed(b, xs[i], identities[i], dim, distance)});
    xs = combine(earlier, xs);
  }
  return xs;
}

Expr running_sum(Expr x, int64_t dim) {
  return scan({x}, {x.b().scalar_int(x.dtype(), 0)}, dim,
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
