// Histograms with edges: torch.histogram and torch.histogramdd.
#include <algorithm>
#include <limits>

#include "ops/indexing.h"
#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

// Elements as rows [n, dimensions] of the dtype that is counted in; PyTorch has float32 and float64.
bool supported(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }
Values no_rule(Context& c) {
  Values results{c.b.fail(ErrorCode::kNotImplemented, c.op + ": no rule for this dtype")};
  for (size_t i = 1; i < c.outs.size(); ++i) results.push_back(c.b.zeros(c.out(i)));
  return results;
}

Expr coordinate(Expr rows, int64_t dimension) {
  const Value x = rows;
  return rows.with(rows.b().reshape(rows.b().slice_dim(x, 1, dimension, dimension + 1), {x.dim(0)}));
}

// `bins` equal steps over the range (low, high of each dimension), or over the data's own. An empty range gets a width
// of 1. Counted from the nearer end, as linspace.
Value even_edges(Context& c, Expr x, int64_t dimension, int64_t bins, const std::vector<double>& range) {
  Expr low = x.with(c.b.scalar(x.dtype(), 0)), high = low.like(1);
  if (!range.empty()) {
    low = low.like(range[dimension * 2]);
    high = low.like(range[dimension * 2 + 1]);
  } else if (x.value().numel() > 0) {
    low = smallest(x, {0});
    high = largest(x, {0});
    c.check_index(!(call("is_finite", low) & call("is_finite", high)));
  }
  Expr empty = low == high;
  Expr from = select(empty, low - 0.5, low), to = select(empty, high + 0.5, high);
  const Shape shape{bins + 1};
  auto spread = [&](Expr v) { return x.with(c.b.broadcast(v, shape)); };
  Expr step = spread((to - from) / opaque_like(from, static_cast<double>(bins)));
  Expr index(c.b, c.b.iota({DType::kI64, shape}, 0));
  Expr from_start = spread(from) + step * index.to(x.dtype());
  Expr from_end = spread(to) - step * (static_cast<double>(bins) - index).to(x.dtype());
  return select(index < static_cast<double>((bins + 1) / 2), from_start, from_end);
}

// The bin of every element, and whether it has one. The last bin includes its upper edge.
struct Bins {
  Expr index, inside;
};
Bins bins_of(Context& c, Expr x, Value edges) {
  const int64_t n = edges.dim(0) - 1;
  auto edge = [&](int64_t i) {
    return x.with(c.b.broadcast(c.b.reshape(c.b.slice_dim(edges, 0, i, i + 1), {}), x.value().shape()));
  };
  Expr index = x.with(search_sorted(c.b, edges, x, /*right=*/true)) - 1;
  return {min(max(index, 0.0), static_cast<double>(n - 1)), (x >= edge(0)) & (x <= edge(n))};
}

// Sums of weights (of ones) in the bins between the edges of each dimension; a density is divided by its sum and by the
// bins' widths.
Value histogram_of(Context& c, Expr rows, const Values& edges, Value weight, bool density) {
  const int64_t n = rows.value().dim(0);
  Shape shape;
  Expr position(c.b, c.b.zeros({DType::kI64, {n}})), inside(c.b, c.b.ones({DType::kBool, {n}}));
  for (size_t d = 0; d < edges.size(); ++d) {
    const int64_t bins = edges[d].dim(0) - 1;
    Bins found = bins_of(c, coordinate(rows, static_cast<int64_t>(d)), edges[d]);
    position = position * static_cast<double>(bins) + found.index.to(DType::kI64);
    inside = inside & found.inside;
    shape.push_back(bins);
  }
  const Type result{rows.dtype(), shape};
  // Elements outside go past the end, where updates are dropped.
  position = select(inside, position, static_cast<double>(element_count(shape)));
  Value weights = weight ? c.b.convert(c.b.reshape(weight, {n}), rows.dtype()) : c.b.ones({rows.dtype(), {n}});
  Expr counts = rows.with(scatter_flat(c.b, c.b.zeros(result), position, weights, Combine::kAdd));
  if (!density) return counts;
  Dims every;
  for (size_t d = 0; d < edges.size(); ++d) every.push_back(static_cast<int64_t>(d));
  counts = counts / rows.with(c.b.broadcast(sum(counts, every), shape));
  for (size_t d = 0; d < edges.size(); ++d) {
    const int64_t bins = shape[d];
    Expr width = rows.with(c.b.slice_dim(edges[d], 0, 1, bins + 1)) - rows.with(c.b.slice_dim(edges[d], 0, 0, bins));
    counts = counts / rows.with(c.b.broadcast_in_dim(width, shape, {static_cast<int64_t>(d)}));
  }
  return counts;
}

Expr as_rows(Context& c, Value x, int64_t dimensions) {
  return {c.b, c.b.reshape(x, {dimensions == 0 ? 0 : x.numel() / dimensions, dimensions})};
}

// (self, bins, range, weight, density) -> hist, bin_edges
Values histogram_of_count(Context& c, const Args& args) {
  if (!supported(args.tensor(0).dtype())) return no_rule(c);
  Expr rows = as_rows(c, args.tensor(0), 1);
  const std::vector<double> range = args.none(2) ? std::vector<double>() : args.numbers(2);
  Value edges = even_edges(c, coordinate(rows, 0), 0, args.integer(1), range);
  return {histogram_of(c, rows, {edges}, args.tensor(3), args.flag_or(4, false)), edges};
}

// (self, bins, weight, density) -> hist, bin_edges
Values histogram_of_edges(Context& c, const Args& args) {
  if (!supported(args.tensor(0).dtype())) return no_rule(c);
  Expr rows = as_rows(c, args.tensor(0), 1);
  const Value edges = args.tensor(1);
  return {histogram_of(c, rows, {edges}, args.tensor(2), args.flag_or(3, false)), edges};
}

Values edges_of_dimensions(Context& c, Expr rows, const Args& args) {
  const std::vector<double> range = args.none(2) ? std::vector<double>() : args.numbers(2);
  Values edges;
  for (size_t d = 0; d < args.ints(1).size(); ++d) {
    const auto dimension = static_cast<int64_t>(d);
    edges.push_back(even_edges(c, coordinate(rows, dimension), dimension, args.ints(1)[d], range));
  }
  return edges;
}

// (self [..., dimensions], bins, range, weight, density) -> one vector of edges for each dimension
Values histogramdd_edges(Context& c, const Args& args) {
  if (!supported(args.tensor(0).dtype())) return no_rule(c);
  return edges_of_dimensions(c, as_rows(c, args.tensor(0), args.tensor(0).dim(-1)), args);
}

// (self, bins, range, weight, density) -> hist
Values histogramdd_of_counts(Context& c, const Args& args) {
  if (!supported(args.tensor(0).dtype())) return no_rule(c);
  Expr rows = as_rows(c, args.tensor(0), args.tensor(0).dim(-1));
  return {histogram_of(c, rows, edges_of_dimensions(c, rows, args), args.tensor(3), args.flag_or(4, false))};
}

// (self, bins, weight, density) -> hist
Values histogramdd_of_edges(Context& c, const Args& args) {
  if (!supported(args.tensor(0).dtype())) return no_rule(c);
  Expr rows = as_rows(c, args.tensor(0), args.tensor(0).dim(-1));
  return {histogram_of(c, rows, args.tensors(1), args.tensor(2), args.flag_or(3, false))};
}

}  // namespace

void add_histogram_rows(Rows& rows) {
  const char* finite = "the range of the input is not finite";
  rows.push_back(Row{"aten::histogram.bin_ct", histogram_of_count}.checking(finite));
  rows.push_back({"aten::histogram.bins_tensor", histogram_of_edges});
  rows.push_back(Row{"aten::_histogramdd_bin_edges", histogramdd_edges}.checking(finite));
  rows.push_back(Row{"aten::_histogramdd_from_bin_cts", histogramdd_of_counts}.checking(finite));
  rows.push_back({"aten::_histogramdd_from_bin_tensors", histogramdd_of_edges});
}

}  // namespace torch_tpu::ops
