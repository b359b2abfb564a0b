// Variance, norms, logsumexp, histograms.
#include <limits>

#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

const double kInf = std::numeric_limits<double>::infinity();

struct Moments {
  Expr variance, average;
};

// Two passes: the mean, then the squared distances from it.
Moments moments(Context& c, const Args& args, DType dtype) {
  Expr x{c.b, c.b.convert(args.tensor(0), dtype)};
  const Dims dims = reduced_dims(args, 1, x.value().rank());
  Expr average = mean(x, dims);
  Expr distance = x - spread(average, x, dims);
  Expr squares =
      is_complex(dtype) ? real(distance) * real(distance) + imag(distance) * imag(distance) : distance * distance;
  Expr total = sum(squares, dims);
  Expr n = count(x, dims);
  Expr correction = args.none(2) ? n.like(1) : n.with(c.b.convert(args.scalar(2), n.dtype()));
  Expr freedom = max(n - correction, 0);
  return {total / total.with(c.b.broadcast(freedom, total.value().shape())), average};
}

Rule variance(bool root) {
  return [=](Context& c, const Args& args) -> Values {
    Moments m = moments(c, args, compute_dtype(args.tensor(0).dtype()));
    return {finish(c, root ? sqrt(m.variance) : m.variance)};
  };
}

Rule variance_and_mean(bool root) {
  return [=](Context& c, const Args& args) -> Values {
    Moments m = moments(c, args, compute_dtype(args.tensor(0).dtype()));
    return {finish(c, root ? sqrt(m.variance) : m.variance, 0), finish(c, m.average, 1)};
  };
}

Expr sum_of_squares(Expr x, const Dims& dims) {
  if (!is_complex(x.dtype())) return sum(x * x, dims);
  return sum(real(x) * real(x) + imag(x) * imag(x), dims);
}

// The p-norm over dims; p known where the row specialises on it, an operand otherwise.
Expr vector_norm(Expr x, const Dims& dims, std::optional<double> known, Value p) {
  hlo::Builder& b = x.b();
  if (known == 2.0) return sqrt(sum_of_squares(x, dims));
  Expr size = abs(x);
  if (known == kInf) return largest(size, dims);
  if (known == -kInf) return smallest(size, dims);
  if (known == 0.0) return sum((size != 0).to(size.dtype()), dims);
  if (known == 1.0) return sum(size, dims);
  Expr power{b, b.convert(p, size.dtype())};
  Expr total = sum(pow(size, x.with(b.broadcast(power, size.value().shape()))), dims);
  Expr inverse = 1.0 / power;
  return pow(total, x.with(b.broadcast(inverse, total.value().shape())));
}

const std::vector<double> kNorms = {0, 1, 2, kInf, -kInf};

// p in argument 1 (absent: 2), dims in argument 2.
Values norm(Context& c, const Args& args) {
  Value x = args.tensor(0);
  // A real input with dtype=complex is allowed; a complex one keeps its imaginary part until |x|.
  DType dtype = is_complex(x.dtype()) ? complex_of(real_of(c.out().dtype)) : compute_dtype(c.out().dtype);
  if (dtype == DType::kC64 && c.out().dtype == DType::kF64) dtype = DType::kC128;
  Expr v{c.b, c.b.convert(x, dtype)};
  std::optional<double> known = args.none(1) ? std::optional<double>(2.0) : args.scalar_constant(1);
  return {finish(c, vector_norm(v, reduced_dims(args, 2, x.rank()), known, args.scalar(1)))};
}

// Slices along dim whose norm exceeds the limit are scaled down to it.
Values renorm(Context& c, const Args& args) {
  Expr x = operand(c, args, 0);
  const int64_t dim = wrap_dim(args.integer(2), x.value().rank());
  Dims others;
  for (int64_t i = 0; i < x.value().rank(); ++i) {
    if (i != dim) others.push_back(i);
  }
  Expr length = vector_norm(x, others, args.scalar_constant(1), args.scalar(1));
  Expr limit = length.with(c.b.broadcast(c.b.convert(args.scalar(3), length.dtype()), length.value().shape()));
  Expr factor = select(length > limit, limit / (length + 1e-7), 1.0);
  return result(c, x * spread(factor.to(x.dtype()), x, others));
}

// Shifted by the largest element; where that is infinite the shift is zero, so that inf - inf never happens.
Expr log_sum_exp(Context&, Expr x, const Dims& dims) {
  if (x.value().numel() == 0) return log(sum(exp(x), dims));
  if (is_complex(x.dtype())) {
    Expr top = largest(real(x), dims);
    top = select(abs(top) == kInf, 0.0, top);
    return log(sum(exp(x - spread(top, x, dims).to(x.dtype())), dims)) + top.to(x.dtype());
  }
  Expr top = largest(x, dims);
  top = select(abs(top) == kInf, 0.0, top);
  return log(sum(exp(x - spread(top, x, dims)), dims)) + top;
}

// Equal-width bins over [min, max]; both equal means the data's own range. The last bin includes its upper edge.
Values histc(Context& c, const Args& args) {
  const int64_t bins = args.integer(1);
  // Integers (which accelerators take, CPU PyTorch does not) are binned in f64: their own division would truncate.
  const bool exact = is_integer(c.out().dtype);
  const DType dtype = exact ? DType::kF64 : compute_dtype(c.out().dtype);
  Value flat = c.b.reshape(args.tensor(0), {args.tensor(0).numel()});
  Expr x{c.b, c.b.convert(flat, dtype)};
  if (x.value().numel() == 0) return {c.b.zeros(c.out())};
  Expr low = x.with(c.b.convert(args.scalar(2), dtype)), high = x.with(c.b.convert(args.scalar(3), dtype));
  Expr own_range = low == high;
  Expr from = select(own_range, smallest(x, {0}), low), to = select(own_range, largest(x, {0}), high);
  Expr flat_range = from == to;
  from = select(flat_range, from - 1, from);
  to = select(flat_range, to + 1, to);
  Expr lower = x.with(c.b.broadcast(from, x.value().shape())), upper = x.with(c.b.broadcast(to, x.value().shape()));
  const double n = static_cast<double>(bins);
  Expr bin = floor(exact ? (x - lower) * n / (upper - lower) : (x - lower) / (upper - lower) * n);
  bin = min(bin, static_cast<double>(bins - 1));
  // Elements outside go to an index past the end, which scatter drops.
  Expr inside = (x >= lower) & (x <= upper);
  Expr index = select(inside, bin.to(DType::kI64), static_cast<double>(bins));
  hlo::ScatterDims dims;
  dims.inserted_window_dims = {0};
  dims.scatter_dims_to_operand_dims = {0};
  dims.index_vector_dim = 1;
  Value counts =
      c.b.scatter(c.b.zeros({dtype, {bins}}), c.b.reshape(index, {x.value().numel(), 1}), c.b.ones(x.value().type()),
                  dims, [](hlo::Builder& b, const Values& v) -> Values { return {b.add(v[0], v[1])}; });
  return {c.b.convert(counts, c.out().dtype)};
}

}  // namespace

void add_moment_rows(Rows& rows) {
  rows.insert(rows.end(), {
                              {"aten::var.correction", variance(false)},
                              {"aten::std.correction", variance(true)},
                              {"aten::var_mean.correction", variance_and_mean(false)},
                              {"aten::std_mean.correction", variance_and_mean(true)},
                              Row{"aten::linalg_vector_norm", norm}.specialising(1, kNorms),
                              Row{"aten::norm.ScalarOpt_dim", norm}.specialising(1, kNorms),
                              Row{"aten::norm.ScalarOpt_dim_dtype", norm}.specialising(1, kNorms),
                              Row{"aten::renorm", renorm}.specialising(1, kNorms),
                              {"aten::logsumexp", reduction(1, log_sum_exp)},
                              {"aten::histc", histc},
                          });
}

}  // namespace torch_tpu::ops
