// Sums, products, extremes, any and all.
#include "ops/reduction.h"

#include <algorithm>

namespace torch_tpu::ops {
namespace {

Expr reduce(Expr x, const Dims& dims, Value init, std::string_view combiner) {
  return dims.empty() ? x : x.with(x.b().reduce(x, init, dims, combiner));
}

Rule reduction_in(int position, bool exact, ReductionBody body) {
  return [=](Context& c, const Args& args) -> Values {
    Value x = args.tensor(0);
    DType dtype = compute_dtype(exact ? x.dtype() : c.out().dtype);
    return {finish(c, body(c, {c.b, c.b.convert(x, dtype)}, reduced_dims(args, position, x.rank())))};
  };
}

// any.dims and all.dims reduce nothing when the list is there and empty.
Rule truth(int position, bool every) {
  return [=](Context& c, const Args& args) -> Values {
    Expr x{c.b, c.b.convert(args.tensor(0), DType::kBool)};
    const bool keeps_all =
        position >= 0 && args.at(position).kind == Arg::Kind::kIntList && args.ints(position).empty();
    const Dims dims = keeps_all ? Dims{} : reduced_dims(args, position, x.value().rank());
    return {finish(c, every ? all(x, dims) : any(x, dims))};
  };
}

Expr nan_sum(Context&, Expr x, const Dims& dims) {
  if (is_float(x.dtype())) x = select(is_nan(x), 0.0, x);
  return sum(x, dims);
}

Expr nonzero_count(Context&, Expr x, const Dims& dims) { return sum((x != 0).to(DType::kI64), dims); }

Values trace(Context& c, const Args& args) {
  Expr x{c.b, c.b.convert(args.tensor(0), compute_dtype(c.out().dtype))};
  const Type index{DType::kI32, x.value().shape()};
  Expr on_diagonal{c.b, c.b.eq(c.b.iota(index, 0), c.b.iota(index, 1))};
  return {finish(c, sum(select(on_diagonal, x, 0.0), {0, 1}))};
}

// max and min with or without a dim: {values, indices}.
Values extreme_with_index(Context& c, const Args& args, bool greatest) {
  Expr x{c.b, args.tensor(0)};
  const Dims dims = reduced_dims(args, 1, x.value().rank());
  if (dims.empty()) return {finish(c, x, 0), c.b.zeros(c.out(1))};
  Expr extreme = greatest ? largest(x, dims) : smallest(x, dims);
  return {finish(c, extreme, 0), finish(c, first_position(x, extreme, dims[0]), 1)};
}

Values arg_extreme(Context& c, const Args& args, bool greatest) {
  Expr x{c.b, args.tensor(0)};
  if (x.value().rank() == 0) return {c.b.zeros(c.out())};
  if (args.none(1)) x = x.with(c.b.reshape(x, {x.value().numel()}));
  const int64_t dim = args.none(1) ? 0 : wrap_dim(args.integer(1), x.value().rank());
  Expr extreme = greatest ? largest(x, {dim}) : smallest(x, {dim});
  return {finish(c, first_position(x, extreme, dim))};
}

Values aminmax(Context& c, const Args& args) {
  Expr x{c.b, args.tensor(0)};
  const Dims dims = reduced_dims(args, 1, x.value().rank());
  return {finish(c, smallest(x, dims), 0), finish(c, largest(x, dims), 1)};
}

}  // namespace

Dims reduced_dims(const Args& args, int position, int64_t rank) {
  if (position < 0 || args.none(position)) return wrap_dims({}, rank);
  const Arg& arg = args.at(position);
  return wrap_dims(arg.kind == Arg::Kind::kInt ? std::vector<int64_t>{arg.i} : arg.ints, rank);
}

Rule reduction(int position, ReductionBody body) { return reduction_in(position, false, std::move(body)); }
Rule reduction_exact(int position, ReductionBody body) { return reduction_in(position, true, std::move(body)); }

Value finish(Context& c, Expr x, size_t out) { return c.b.convert(c.b.reshape(x, c.out(out).shape), c.out(out).dtype); }

Expr sum(Expr x, const Dims& dims) { return dims.empty() ? x : x.with(x.b().reduce_sum(x, dims)); }
Expr product(Expr x, const Dims& dims) { return reduce(x, dims, x.b().scalar_int(x.dtype(), 1), "multiply"); }
Expr largest(Expr x, const Dims& dims) { return dims.empty() ? x : x.with(x.b().reduce_max(x, dims)); }
Expr smallest(Expr x, const Dims& dims) { return dims.empty() ? x : x.with(x.b().reduce_min(x, dims)); }
Expr any(Expr x, const Dims& dims) { return reduce(x, dims, x.b().scalar_int(DType::kBool, 0), "or"); }
Expr all(Expr x, const Dims& dims) { return reduce(x, dims, x.b().scalar_int(DType::kBool, 1), "and"); }

Expr count(Expr x, const Dims& dims) {
  DType dtype = real_of(x.dtype());
  if (dims.empty()) return x.with(x.b().scalar_int(dtype, 1));
  return opaque(x.with(x.b().extents(x, dims, dtype)));
}

Expr mean(Expr x, const Dims& dims) {
  Expr total = sum(x, dims);
  Expr n = count(x, dims).to(x.dtype());
  return total / total.with(x.b().broadcast(n, total.value().shape()));
}

Expr spread(Expr reduced, Expr x, const Dims& dims) {
  Dims kept;
  for (int64_t i = 0; i < x.value().rank(); ++i) {
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) kept.push_back(i);
  }
  return x.with(x.b().broadcast_in_dim(reduced, x.value().shape(), kept));
}

Expr first_position(Expr x, Expr extreme, int64_t dim) {
  // Two plain reductions vectorise where one reduction of (value, index) pairs does not.
  const DType index = x.value().dim(dim) < (int64_t{1} << 31) ? DType::kI32 : DType::kI64;
  Expr whole = spread(extreme, x, {dim});
  Expr hit = x == whole;
  if (is_float(x.dtype())) hit = hit | (is_nan(x) & is_nan(whole));
  Expr position{x.b(), x.b().iota({index, x.value().shape()}, dim)};
  Expr beyond{x.b(), x.b().max_value(position.value().type())};
  return smallest(select(hit, position, beyond), {dim}).to(DType::kI64);
}

void add_sum_rows(Rows& rows) {
  rows.insert(rows.end(),
              {
                  {"aten::sum.dim_IntList", reduction(1, [](Context&, Expr x, const Dims& d) { return sum(x, d); })},
                  {"aten::mean.dim", reduction(1, [](Context&, Expr x, const Dims& d) { return mean(x, d); })},
                  {"aten::nansum", reduction(1, nan_sum)},
                  {"aten::prod", reduction(-1, [](Context&, Expr x, const Dims& d) { return product(x, d); })},
                  {"aten::prod.dim_int", reduction(1, [](Context&, Expr x, const Dims& d) { return product(x, d); })},
                  {"aten::count_nonzero.dim_IntList", reduction_exact(1, nonzero_count)},
                  {"aten::trace", trace},
                  {"aten::any", truth(-1, false)},
                  {"aten::any.dim", truth(1, false)},
                  {"aten::any.dims", truth(1, false)},
                  {"aten::all", truth(-1, true)},
                  {"aten::all.dim", truth(1, true)},
                  {"aten::all.dims", truth(1, true)},
              });
}

void add_extreme_rows(Rows& rows) {
  auto greatest = [](Context&, Expr x, const Dims& d) { return largest(x, d); };
  auto least = [](Context&, Expr x, const Dims& d) { return smallest(x, d); };
  rows.insert(rows.end(),
              {
                  {"aten::amax", reduction(1, greatest)},
                  {"aten::amin", reduction(1, least)},
                  {"aten::max", reduction(-1, greatest)},
                  {"aten::min", reduction(-1, least)},
                  {"aten::max.dim", [](Context& c, const Args& args) { return extreme_with_index(c, args, true); }},
                  {"aten::min.dim", [](Context& c, const Args& args) { return extreme_with_index(c, args, false); }},
                  {"aten::argmax", [](Context& c, const Args& args) { return arg_extreme(c, args, true); }},
                  {"aten::argmin", [](Context& c, const Args& args) { return arg_extreme(c, args, false); }},
                  {"aten::aminmax", aminmax},
              });
}

void add_reduction_rows(Rows& rows) {
  add_sum_rows(rows);
  add_extreme_rows(rows);
  add_moment_rows(rows);
  add_scan_rows(rows);
  add_histogram_rows(rows);
}

}  // namespace torch_tpu::ops
