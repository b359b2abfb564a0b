// Samplers that repeat until every element has accepted a proposal: gamma, Poisson, binomial.
#include <functional>
#include <limits>
#include <numbers>

#include "ops/random.h"
#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

struct Proposal {
  Expr value, accepted;
};

// Proposes with draws first, first + 1, ... (`draws` of them per attempt) until every element not in `settled` has
// accepted; settled elements keep their value. Attempt n of element i depends on (seed, block, lane, n) alone, so the
// numbers do not depend on how long other elements take.
Expr repeat(Expr initial, Expr settled, int64_t draws, const std::function<Proposal(Expr first)>& propose) {
  hlo::Builder& b = initial.b();
  Values end = b.while_loop(
      {b.scalar_int(DType::kU32, 0), settled, initial},
      [](hlo::Builder& b, const Values& v) -> Values {
        Dims all;
        for (int64_t i = 0; i < v[1].rank(); ++i) all.push_back(i);
        return {any({b, b.logical_not(v[1])}, all)};
      },
      [&](hlo::Builder& b, const Values& v) -> Values {
        Expr first{b, v[0]}, done{b, v[1]}, value{b, v[2]};
        Proposal proposal = propose(first);
        return {first + static_cast<double>(draws), done | proposal.accepted, select(done, value, proposal.value)};
      });
  return initial.with(end[2]);
}

int64_t words_per_number(DType dtype) { return dtype == DType::kF64 ? 2 : 1; }

// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. Shapes below one are drawn at shape + 1
// and scaled down by u^(1 / shape).
Expr gamma(const Random& random, Expr shape) {
  const DType dtype = shape.dtype();
  const int64_t words = words_per_number(dtype);
  Expr small = shape < 1;
  Expr d = select(small, shape + 1, shape) - 1.0 / 3;
  Expr scale = rsqrt(d * 9);
  // Draws from 2^31 on belong to the boost, far above what attempts reach.
  Expr boost = pow(random.uniform_open(dtype, random.draw(int64_t{1} << 31)), 1.0 / select(small, shape, 1.0));
  Expr unusable = (shape <= 0) | is_nan(shape);
  Expr value = repeat(shape.like(0), unusable, 3 * words, [&](Expr first) -> Proposal {
    Expr x = random.normal(dtype, first);
    Expr u = random.uniform_open(dtype, first + static_cast<double>(2 * words));
    Expr root = 1.0 + scale * x;
    Expr v = root * root * root;
    Expr positive = v > 0;
    Expr bound = 0.5 * x * x + d - d * v + d * log(select(positive, v, 1.0));
    return {d * v, positive & (log(u) < bound)};
  });
  return select(is_nan(shape), shape, select(small, value * boost, value));
}

double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::numeric_limits<double>::min();
    case DType::kF16:
      return 0x1p-14;
    default:
      return std::numeric_limits<float>::min();
  }
}

Values standard_gamma(Context& c, const Args& args) {
  const DType dtype = draw_dtype(c.out().dtype);
  Random random(c, c.out().shape);
  Expr x = gamma(random, operand(c, args, 0, dtype));
  return result(c, max(x, smallest_normal(c.out().dtype)));
}

// Independent gammas over their sum along the last dimension.
Values sample_dirichlet(Context& c, const Args& args) {
  const DType dtype = draw_dtype(c.out().dtype);
  Expr x = gamma(Random(c, c.out().shape), operand(c, args, 0, dtype));
  const Dims last = {x.value().rank() - 1};
  return result(c, max(x / spread(sum(x, last), x, last), smallest_normal(c.out().dtype)));
}

// Rates below ten: count uniform factors until their product falls below exp(-rate) (Knuth). One factor per attempt.
Expr poisson_by_product(const Random& random, Expr rate, Expr settled) {
  hlo::Builder& b = rate.b();
  const DType dtype = rate.dtype();
  Expr limit = exp(-rate);
  Values end = b.while_loop(
      {b.scalar_int(DType::kU32, 0), settled, rate.like(1), rate.like(-1)},
      [](hlo::Builder& b, const Values& v) -> Values {
        Dims all;
        for (int64_t i = 0; i < v[1].rank(); ++i) all.push_back(i);
        return {any({b, b.logical_not(v[1])}, all)};
      },
      [&](hlo::Builder& b, const Values& v) -> Values {
        Expr first{b, v[0]}, done{b, v[1]}, product{b, v[2]}, number{b, v[3]};
        Expr next = product * random.uniform_open(dtype, first);
        return {first + static_cast<double>(words_per_number(dtype)), done | (next <= limit),
                select(done, product, next), select(done, number, number + 1)};
      });
  return rate.with(end[3]);
}

// Rates from ten on: Hörmann, "The transformed rejection method for generating Poisson random variables", 1993 (PTRS).
Expr poisson_by_rejection(const Random& random, Expr rate, Expr settled) {
  const DType dtype = rate.dtype();
  const int64_t words = words_per_number(dtype);
  Expr b = 0.931 + 2.53 * sqrt(rate);
  Expr a = -0.059 + 0.02483 * b;
  Expr inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  Expr quick = 0.9277 - 3.6224 / (b - 2);
  Expr log_rate = log(rate);
  return repeat(rate.like(0), settled, 2 * words, [&](Expr first) -> Proposal {
    Expr u = random.uniform_open(dtype, first) - 0.5;
    Expr v = random.uniform_open(dtype, first + static_cast<double>(words));
    Expr us = 0.5 - abs(u);
    Expr k = floor((2.0 * a / us + b) * u + rate + 0.43);
    Expr sure = (us >= 0.07) & (v <= quick);
    Expr never = (k < 0) | ((us < 0.013) & (v > us));
    Expr left = log(v * inverse_alpha / (a / (us * us) + b));
    Expr right = k * log_rate - rate - lgamma(max(k, 0) + 1);
    return {k, sure | ((!never) & (left <= right))};
  });
}

Values poisson(Context& c, const Args& args) {
  const DType dtype = draw_dtype(c.out().dtype);
  Random random(c, c.out().shape);
  Expr rate = operand(c, args, 0, dtype);
  Expr large = rate >= 10;
  Expr low = poisson_by_product(random, select(large, 0.0, rate), large | !(rate > 0));
  Expr high = poisson_by_rejection(random, select(large, rate, 10.0), !large);
  return result(c, select(large, high, select(rate > 0, low, 0.0)));
}

// Few expected successes: gaps between successes are geometric; count how many fit into n trials.
Expr binomial_by_gaps(const Random& random, Expr n, Expr p, Expr settled) {
  hlo::Builder& b = n.b();
  const DType dtype = n.dtype();
  Expr scale = log1p(-p);
  Values end = b.while_loop(
      {b.scalar_int(DType::kU32, 0), settled, n.like(0), n.like(-1)},
      [](hlo::Builder& b, const Values& v) -> Values {
        Dims all;
        for (int64_t i = 0; i < v[1].rank(); ++i) all.push_back(i);
        return {any({b, b.logical_not(v[1])}, all)};
      },
      [&](hlo::Builder& b, const Values& v) -> Values {
        Expr first{b, v[0]}, done{b, v[1]}, trials{b, v[2]}, number{b, v[3]};
        Expr next = trials + max(ceil(log(random.uniform_open(dtype, first)) / scale), 1);
        return {first + static_cast<double>(words_per_number(dtype)), done | (next > n), select(done, trials, next),
                select(done, number, number + 1)};
      });
  return n.with(end[3]);
}

// log(k!) - ((k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2): Stirling's series where its three terms are exact to f32
// rounding, directly below.
Expr stirling_tail(Expr k) {
  Expr k1 = k + 1;
  Expr square = k1 * k1;
  Expr series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / k1;
  Expr direct = lgamma(k1) - ((k + 0.5) * log(k1) - k1 + 0.5 * std::log(2 * std::numbers::pi));
  return select(k < 10, direct, series);
}

// Many expected successes: Hörmann, "The generation of binomial random variates", 1993 (BTRS), for p <= 1/2.
Expr binomial_by_rejection(const Random& random, Expr n, Expr p, Expr settled) {
  const DType dtype = n.dtype();
  const int64_t words = words_per_number(dtype);
  Expr deviation = sqrt(n * p * (1.0 - p));
  Expr b = 1.15 + 2.53 * deviation;
  Expr a = -0.0873 + 0.0248 * b + 0.01 * p;
  Expr centre = n * p + 0.5;
  Expr quick = 0.92 - 4.2 / b;
  Expr odds = p / (1.0 - p);
  Expr alpha = (2.83 + 5.1 / b) * deviation;
  Expr mode = floor((n + 1) * p);
  return repeat(n.like(0), settled, 2 * words, [&](Expr first) -> Proposal {
    Expr u = random.uniform_open(dtype, first) - 0.5;
    Expr v = random.uniform_open(dtype, first + static_cast<double>(words));
    Expr us = 0.5 - abs(u);
    Expr k = floor((2.0 * a / us + b) * u + centre);
    Expr sure = (us >= 0.07) & (v <= quick);
    Expr possible = (k >= 0) & (k <= n);
    Expr inside = select(possible, k, mode);
    Expr left = log(v * alpha / (a / (us * us) + b));
    Expr right = (mode + 0.5) * log((mode + 1) / (odds * (n - mode + 1))) +
                 (n + 1) * log((n - mode + 1) / (n - inside + 1)) +
                 (inside + 0.5) * log(odds * (n - inside + 1) / (inside + 1)) + stirling_tail(mode) +
                 stirling_tail(n - mode) - stirling_tail(inside) - stirling_tail(n - inside);
    return {k, possible & (sure | (left <= right))};
  });
}

Values binomial(Context& c, const Args& args) {
  const DType dtype = draw_dtype(c.out().dtype);
  Random random(c, c.out().shape);
  Expr n = floor(operand(c, args, 0, dtype)), p = operand(c, args, 1, dtype);
  Expr flipped = p > 0.5;
  Expr q = select(flipped, 1.0 - p, p);
  Expr usable = (n > 0) & (q > 0);
  Expr many = usable & (n * q >= 10);
  Expr few = usable & (n * q < 10);
  Expr low = binomial_by_gaps(random, select(few, n, 1.0), select(few, q, 0.5), !few);
  Expr high = binomial_by_rejection(random, select(many, n, 100.0), select(many, q, 0.5), !many);
  Expr number = select(many, high, select(few, low, 0.0));
  number = select(flipped, n - number, number);
  return result(c, select(is_nan(p) | is_nan(n), p + n, select(n > 0, number, 0.0)));
}

}  // namespace

void add_rejection_rows(Rows& rows) {
  rows.insert(rows.end(), {
                              {"aten::_standard_gamma", standard_gamma},
                              {"aten::_sample_dirichlet", sample_dirichlet},
                              {"aten::poisson", poisson},
                              {"aten::binomial", binomial},
                          });
}

}  // namespace torch_tpu::ops
