// Orthogonal polynomials by their three-term recurrences; argument 0 is x, argument 1 the degree n (truncated).
#include <functional>

#include "ops/pointwise.h"
#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

// p[k+1] from k (as a float), x, p[k] and p[k-1].
using Step = std::function<Expr(Expr k, Expr x, Expr current, Expr previous)>;

struct Family {
  const char* name;
  UnaryBody first;  // p[1]; p[0] = 1
  Step step;
};

// Runs the recurrence up to the largest degree of all elements; each element keeps its own degree's value.
Expr evaluate(Expr x, Expr degree, const Family& family) {
  hlo::Builder& b = x.b();
  Expr n = trunc(degree);
  Dims all;
  for (int64_t i = 0; i < n.value().rank(); ++i) all.push_back(i);
  Expr highest = largest(n, all);
  Expr one = x.like(1), linear = family.first(x);
  Expr start = select(n < 0, 0.0, select(n == 0, one, linear));
  Values end = b.while_loop(
      {b.scalar(x.dtype(), 1), one, linear, start},
      [&](hlo::Builder& b, const Values& v) -> Values { return {b.lt(v[0], highest)}; },
      [&](hlo::Builder& b, const Values& v) -> Values {
        Expr k{b, v[0]}, previous{b, v[1]}, current{b, v[2]}, result{b, v[3]};
        Expr wide{b, b.broadcast(k, x.value().shape())};
        Expr next = family.step(wide, x, current, previous);
        return {k + 1, current, next, select(n == wide + 1, next, result)};
      });
  return x.with(end[3]);
}

Expr chebyshev_step(Expr, Expr x, Expr current, Expr previous) { return 2.0 * x * current - previous; }

Expr shifted_step(Expr, Expr x, Expr current, Expr previous) { return 2.0 * (2.0 * x - 1) * current - previous; }

const Family kFamilies[] = {
    {"chebyshev_polynomial_t", [](Expr x) { return x; }, chebyshev_step},
    {"chebyshev_polynomial_u", [](Expr x) { return 2.0 * x; }, chebyshev_step},
    {"chebyshev_polynomial_v", [](Expr x) { return 2.0 * x - 1; }, chebyshev_step},
    {"chebyshev_polynomial_w", [](Expr x) { return 2.0 * x + 1; }, chebyshev_step},
    {"shifted_chebyshev_polynomial_t", [](Expr x) { return 2.0 * x - 1; }, shifted_step},
    {"shifted_chebyshev_polynomial_u", [](Expr x) { return 2.0 * (2.0 * x - 1); }, shifted_step},
    {"shifted_chebyshev_polynomial_v", [](Expr x) { return 2.0 * (2.0 * x - 1) - 1; }, shifted_step},
    {"shifted_chebyshev_polynomial_w", [](Expr x) { return 2.0 * (2.0 * x - 1) + 1; }, shifted_step},
    {"hermite_polynomial_h", [](Expr x) { return 2.0 * x; },
     [](Expr k, Expr x, Expr p, Expr q) { return 2.0 * x * p - 2.0 * k * q; }},
    {"hermite_polynomial_he", [](Expr x) { return x; }, [](Expr k, Expr x, Expr p, Expr q) { return x * p - k * q; }},
    {"laguerre_polynomial_l", [](Expr x) { return 1.0 - x; },
     [](Expr k, Expr x, Expr p, Expr q) { return ((2.0 * k + 1 - x) * p - k * q) / (k + 1); }},
    {"legendre_polynomial_p", [](Expr x) { return x; },
     [](Expr k, Expr x, Expr p, Expr q) { return ((2.0 * k + 1) * x * p - k * q) / (k + 1); }},
};

}  // namespace

void add_polynomial_rows(Rows& rows) {
  for (const Family& family : kFamilies) {
    Rule rule = binary([&family](Expr x, Expr n) { return evaluate(x, n, family); });
    for (const char* overload : {"", ".n_scalar", ".x_scalar"}) {
      rows.push_back({std::string("aten::special_") + family.name + overload, rule});
      rows.back().as_pointwise();
    }
  }
}

}  // namespace torch_tpu::ops
