// Softmax families, forward and backward, computed in f32 for f16 and bf16.
#include "ops/expr.h"
#include "ops/promote.h"
#include "ops/table.h"

namespace torch_tpu::ops {
namespace {

// Rows longer than this are summed in runs: the engine's own cut of a long sum (hlo/host_reduction.cc) would write the
// terms to memory first, which takes longer than computing them (256 rows of 50257: 25 ms of 85).
constexpr int64_t kLongestRow = 2048, kRun = 1024;

struct Along {
  int64_t dim;
  Shape shape;  // the operand's
  bool host;
  // The sum of `term` of the operands' elements.
  template <typename Term>
  Expr sum(const std::vector<Expr>& xs, Term term) const {
    Builder& b = xs[0].b();
    const int64_t n = shape[dim];
    if (!host || n <= kLongestRow || dim + 1 != static_cast<int64_t>(shape.size()))
      return restore(xs[0].with(b.reduce_sum(term(xs), {dim})));
    const int64_t runs = n / kRun, rest = runs * kRun;
    const Value zero = b.zeros({xs[0].dtype(), {}});
    auto part = [&](int64_t from, int64_t to) {
      std::vector<Expr> cut;
      for (const Expr& x : xs) cut.push_back(x.with(b.slice_dim(x, dim, from, to)));
      return term(cut);
    };
    Shape rows(shape.begin(), shape.end() - 1);
    rows.insert(rows.end(), {runs, kRun});
    Value total = b.reduce(b.reduce(b.reshape(part(0, rest), rows), zero, {dim + 1}, "add"), zero, {dim}, "add");
    if (rest < n) total = b.add(total, b.reduce(part(rest, n), zero, {dim}, "add"));
    return restore(xs[0].with(total));
  }
  // What is subtracted before the exponentials. Where a row holds a NaN it may be any entry: the row is NaN anyhow. A
  // maximum that keeps NaN is one the embedded engine does not vectorise.
  Expr maximum(Expr x) const {
    const Value lowest = x.b().min_value({x.dtype(), {}});
    return restore(x.with(x.b().reduce({x}, {lowest}, {dim}, [](hlo::Builder& b, const Values& v) {
      return Values{b.select(b.gt(v[0], v[1]), v[0], v[1])};
    })[0]));
  }
  Expr restore(Expr reduced) const {
    Dims dims;
    for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i)
      if (i != dim) dims.push_back(i);
    return reduced.with(reduced.b().broadcast_in_dim(reduced, shape, dims));
  }
};

// A 0-d operand is a softmax over one element: computed as a vector of one.
struct Operand {
  Expr x;
  Along along;
};
Operand operand(Context& c, Value v, int64_t dim) {
  const DType dtype = compute_dtype(v.dtype());
  v = c.b.convert(v, dtype);
  if (v.rank() == 0) v = c.b.reshape(v, {1});
  return {{c.b, v}, {wrap_dim(dim, v.rank()), v.shape(), c.platform == Platform::kCpu}};
}

Value result(Context& c, Expr x) { return c.b.reshape(x.to(c.out().dtype), c.out().shape); }

Values softmax(Context& c, const Args& args) {
  auto [x, along] = operand(c, args.tensor(0), args.integer(1));
  if (x.value().numel() == 0) return {c.b.zeros(c.out())};
  Expr top = along.maximum(x);
  auto term = [](const std::vector<Expr>& v) { return exp(v[0] - v[1]); };
  return {result(c, term({x, top}) / along.sum({x, top}, term))};
}

Values log_softmax(Context& c, const Args& args) {
  auto [x, along] = operand(c, args.tensor(0), args.integer(1));
  if (x.value().numel() == 0) return {c.b.zeros(c.out())};
  Expr top = along.maximum(x);
  Expr sum = along.sum({x, top}, [](const std::vector<Expr>& v) { return exp(v[0] - v[1]); });
  return {result(c, x - top - log(sum))};
}

// (grad, output, dim, input_dtype)
Values softmax_backward(Context& c, const Args& args) {
  auto [g, along] = operand(c, args.tensor(0), args.integer(2));
  Expr y = operand(c, args.tensor(1), args.integer(2)).x;
  return {result(c, y * (g - along.sum({g, y}, [](const std::vector<Expr>& v) { return v[0] * v[1]; })))};
}

Values log_softmax_backward(Context& c, const Args& args) {
  auto [g, along] = operand(c, args.tensor(0), args.integer(2));
  Expr y = operand(c, args.tensor(1), args.integer(2)).x;
  return {result(c, g - exp(y) * along.sum({g}, [](const std::vector<Expr>& v) { return v[0]; }))};
}

// Rows that are -inf throughout give zeros instead of NaN.
Values safe_softmax(Context& c, const Args& args) {
  Values y = softmax(c, args);
  auto [x, along] = operand(c, args.tensor(0), args.integer(1));
  if (x.value().numel() == 0) return y;
  Expr dead = along.maximum(x) == x.with(c.b.min_value(x.value().type()));
  Expr masked = select(dead, 0.0, Expr(c.b, c.b.reshape(y[0], x.value().shape())).to(x.dtype()));
  return {result(c, masked)};
}

}  // namespace

void add_softmax_rows(Rows& rows) {
  rows.push_back({"aten::_softmax", softmax});
  rows.push_back({"aten::_log_softmax", log_softmax});
  rows.push_back({"aten::_softmax_backward_data", softmax_backward});
  rows.push_back({"aten::_log_softmax_backward_data", log_softmax_backward});
  rows.push_back({"aten::_safe_softmax", safe_softmax});
}

}  // namespace torch_tpu::ops
