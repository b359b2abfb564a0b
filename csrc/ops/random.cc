// Random rows: distributions with a closed form, dropout, permutations. Rejection samplers are in random_rejection.cc.
#include "ops/random.h"

#include <limits>
#include <numbers>

#include "ops/reduction.h"

namespace torch_tpu::ops {
namespace {

using std::numbers::pi;
using std::numbers::sqrt2;

// A `float` parameter: a 0-d operand, so that another bound, deviation or probability is no other program.
Expr parameter(Context& c, const Args& args, size_t i, double otherwise, DType dtype, const Shape& shape) {
  if (args.none(i)) return {c.b, c.b.constant({dtype, shape}, otherwise)};
  Value operand = args.scalar(i);
  return {c.b, operand ? as(c, operand, dtype, shape) : c.b.constant({dtype, shape}, args.number(i))};
}

// New value of the written argument 0 from numbers in the dtype it draws in; argument i by number(i, default).
using Number = std::function<Expr(size_t i, double otherwise)>;
using Sampler = std::function<Expr(const Random& random, DType dtype, const Number& number)>;

Rule in_place(Sampler sampler) {
  return [sampler = std::move(sampler)](Context& c, const Args& args) -> Values {
    const Type type = args.tensor(0).type();
    if (element_count(type.shape) == 0) return {args.tensor(0)};
    const DType dtype = draw_dtype(type.dtype);
    const Number number = [&](size_t i, double otherwise) {
      return parameter(c, args, i, otherwise, dtype, type.shape);
    };
    return {c.b.convert(sampler(Random(c, type.shape), dtype, number), type.dtype)};
  };
}

// Rounding to a narrow dtype may reach the upper end, which is not part of [from, to).
Values uniform(Context& c, const Args& args) {
  const Type type = args.tensor(0).type();
  if (element_count(type.shape) == 0) return {args.tensor(0)};
  const DType dtype = draw_dtype(type.dtype);
  Expr from = parameter(c, args, 1, 0, DType::kF64, {}), to = parameter(c, args, 2, 1, DType::kF64, {});
  auto spread_out = [&](Expr v, DType t) { return v.with(as(c, v, t, type.shape)); };
  Expr u = Random(c, type.shape).uniform(dtype);
  Expr x = (u * spread_out(to - from, dtype) + spread_out(from, dtype)).to(type.dtype);
  return {min(x, next_after(spread_out(to, type.dtype), spread_out(from, type.dtype)))};
}

// A complex normal has half of its variance in each part.
Values normal(Context& c, const Args& args) {
  const Type type = args.tensor(0).type();
  if (element_count(type.shape) == 0) return {args.tensor(0)};
  const DType dtype = draw_dtype(type.dtype);
  Expr mean = parameter(c, args, 1, 0, dtype, type.shape), deviation = parameter(c, args, 2, 1, dtype, type.shape);
  if (!is_complex(type.dtype)) return {(Random(c, type.shape).normal(dtype) * deviation + mean).to(type.dtype)};
  Shape parts = type.shape;
  parts.insert(parts.begin(), 2);
  Value z = Random(c, parts).normal(dtype);
  Expr re{c.b, c.b.reshape(c.b.slice_dim(z, 0, 0, 1), type.shape)},
      im{c.b, c.b.reshape(c.b.slice_dim(z, 0, 1, 2), type.shape)};
  Expr half = deviation * (1 / sqrt2);
  return {c.b.complex(re * half + mean, im * half)};
}

// normal.Tensor_float and its kin: argument 0 is the mean, argument 1 the deviation, either may be a number.
Values normal_from(Context& c, const Args& args) {
  const DType dtype = draw_dtype(c.out().dtype);
  auto given = [&](size_t i) {
    return args.at(i).kind == Arg::Kind::kTensor ? operand(c, args, i, dtype)
                                                 : parameter(c, args, i, 1, dtype, c.out().shape);
  };
  return result(c, Random(c, c.out().shape).normal(dtype) * given(1) + given(0));
}

Expr log_normal(const Random& random, DType dtype, const Number& number) {
  return exp(random.normal(dtype) * number(2, 2) + number(1, 1));
}

Expr exponential(const Random& random, DType dtype, const Number& number) {
  return -log(random.uniform_open(dtype)) / number(1, 1);
}

Expr geometric(const Random& random, DType dtype, const Number& number) {
  return max(ceil(log(random.uniform_open(dtype)) / log1p(-number(1, 0.5))), 1);
}

Expr cauchy(const Random& random, DType dtype, const Number& number) {
  Expr angle = (random.uniform_open(dtype) - 0.5) * pi;
  return sin(angle) / cos(angle) * number(2, 1) + number(1, 0);
}

Expr bernoulli_number(const Random& random, DType dtype, const Number& number) {
  return random.uniform(dtype) < number(1, 0.5);
}

Values bernoulli_tensor(Context& c, const Args& args) {
  const Type type = args.tensor(0).type();
  const DType dtype = draw_dtype(args.tensor(1).dtype());
  Expr p{c.b, as(c, args, 1, dtype, type.shape)};
  return {c.b.convert(Random(c, type.shape).uniform(dtype) < p, type.dtype)};
}

Values bernoulli(Context& c, const Args& args) {
  const DType dtype = draw_dtype(args.tensor(0).dtype());
  return result(c, Random(c, c.out().shape).uniform(dtype) < operand(c, args, 0, dtype));
}

// Integers in [from, from + range); range 0 stands for 2^64. Small ranges read 32 bits: the bias of the modulus is then
// below 2^-16, and below 2^-32 for all that read 64.
Value integers(Context& c, const Type& type, int64_t from, uint64_t range) {
  Random random(c, type.shape);
  hlo::Builder& b = c.b;
  Expr words = range != 0 && range <= 0x10000 ? random.bits32(random.draw(0)) : random.bits64(random.draw(0));
  Expr number = range == 0 ? words : words % Expr{b, b.constant_uint(words.value().type(), range)};
  Expr base{b, b.constant_int({DType::kI64, type.shape}, from)};
  return b.convert(number.to(DType::kI64) + base, type.dtype);
}

// Exclusive upper end minus lower end for an open-ended random_: integers up to the dtype's largest, floats up to the
// largest integer below which all integers are representable.
uint64_t open_range(DType dtype, int64_t from) {
  switch (dtype) {
    case DType::kBool:
      return 2 - from;
    case DType::kF16:
      return (uint64_t{1} << 11) + 1 - from;
    case DType::kBF16:
      return (uint64_t{1} << 8) + 1 - from;
    case DType::kF32:
      return (uint64_t{1} << 24) + 1 - from;
    case DType::kF64:
      return (uint64_t{1} << 53) + 1 - from;
    default:
      break;
  }
  const int bits = static_cast<int>(8 * byte_size(dtype)) - (is_signed_integer(dtype) ? 1 : 0);
  const uint64_t end = bits == 64 ? 0 : uint64_t{1} << bits;
  return end - static_cast<uint64_t>(from);
}

Values random_open(Context& c, const Args& args) {
  const Type type = args.tensor(0).type();
  if (element_count(type.shape) == 0) return {args.tensor(0)};
  return {integers(c, type, 0, open_range(type.dtype, 0))};
}

Values random_to(Context& c, const Args& args) {
  const Type type = args.tensor(0).type();
  if (element_count(type.shape) == 0) return {args.tensor(0)};
  return {integers(c, type, 0, static_cast<uint64_t>(args.integer(1)))};
}

Values random_from(Context& c, const Args& args) {
  const Type type = args.tensor(0).type();
  if (element_count(type.shape) == 0) return {args.tensor(0)};
  const int64_t from = args.integer(1);
  if (args.none(2)) return {integers(c, type, from, open_range(type.dtype, from))};
  return {integers(c, type, from, static_cast<uint64_t>(args.integer(2)) - static_cast<uint64_t>(from))};
}

Values native_dropout(Context& c, const Args& args) {
  const Shape& shape = c.out().shape;
  if (!args.flag_or(2, true)) return {operand(c, args, 0, c.out().dtype), c.b.ones(c.out(1))};
  Expr x = operand(c, args, 0);
  Expr share = 1.0 - parameter(c, args, 1, 0.5, DType::kF64, {});
  Expr keep = Random(c, shape).uniform(DType::kF32) < x.with(as(c, share, DType::kF32, shape));
  Expr scaled = select(keep, x / x.with(as(c, share, x.dtype(), shape)), 0.0);
  return {c.b.convert(scaled, c.out().dtype), c.b.convert(keep, c.out(1).dtype)};
}

Values native_dropout_backward(Context& c, const Args& args) {
  Expr g = operand(c, args, 0), mask = operand(c, args, 1);
  return result(c, g * mask * parameter(c, args, 2, 1, g.dtype(), c.out().shape));
}

// Positions sorted by random 64-bit keys.
Values randperm(Context& c, const Args&) {
  const int64_t n = c.out().shape[0];
  if (n == 0) return {c.b.zeros(c.out())};
  Random random(c, {n});
  const Type index{n < (int64_t{1} << 31) ? DType::kI32 : DType::kI64, {n}};
  Values sorted = c.b.sort({random.bits64(random.draw(0)), c.b.iota(index, 0)}, 0, true,
                           [](hlo::Builder& b, const Values& v) -> Values { return {b.lt(v[0], v[1])}; });
  return {c.b.convert(sorted[1], c.out().dtype)};
}

// Training draws the slope of every non-positive element; noise remembers it, 1 elsewhere. Written noise comes first.
Values rrelu(Context& c, const Args& args, bool in_place) {
  const Type type = args.tensor(0).type();
  const DType dtype = compute_dtype(type.dtype);
  Expr x{c.b, c.b.convert(args.tensor(0), dtype)};
  Expr lower{c.b, as(c, args, 2, dtype, type.shape)}, upper{c.b, as(c, args, 3, dtype, type.shape)};
  Expr slope = (lower + upper) / 2;
  Value noise = args.tensor(1);
  if (args.flag(4)) {
    slope = Random(c, type.shape).uniform(dtype) * (upper - lower) + lower;
    noise = c.b.convert(select(x <= 0, slope, 1.0), type.dtype);
  }
  Value y = c.b.convert(select(x <= 0, x * slope, x), type.dtype);
  if (in_place) return {y, noise};
  return {noise, y};
}

}  // namespace

DType draw_dtype(DType dtype) { return dtype == DType::kF64 || dtype == DType::kC128 ? DType::kF64 : DType::kF32; }

void add_random_rows(Rows& rows) {
  const size_t first = rows.size();
  rows.insert(rows.end(),
              {
                  Row{"aten::uniform_", uniform}.ignoring_self(),
                  Row{"aten::normal_", normal}.ignoring_self(),
                  {"aten::normal.Tensor_float", normal_from},
                  {"aten::normal.float_Tensor", normal_from},
                  {"aten::normal.Tensor_Tensor", normal_from},
                  Row{"aten::log_normal_", in_place(log_normal)}.ignoring_self(),
                  Row{"aten::exponential_", in_place(exponential)}.ignoring_self(),
                  Row{"aten::geometric_", in_place(geometric)}.ignoring_self(),
                  Row{"aten::cauchy_", in_place(cauchy)}.ignoring_self(),
                  {"aten::bernoulli", bernoulli},
                  Row{"aten::bernoulli_.float", in_place(bernoulli_number)}.ignoring_self(),
                  Row{"aten::bernoulli_.Tensor", bernoulli_tensor}.ignoring_self(),
                  Row{"aten::random_", random_open}.ignoring_self(),
                  Row{"aten::random_.to", random_to}.ignoring_self(),
                  Row{"aten::random_.from", random_from}.ignoring_self(),
                  {"aten::native_dropout", native_dropout},
                  {"aten::randperm.generator", randperm},
                  {"aten::rrelu_with_noise", [](Context& c, const Args& args) { return rrelu(c, args, false); }},
                  {"aten::rrelu_with_noise_", [](Context& c, const Args& args) { return rrelu(c, args, true); }},
              });
  add_multinomial_rows(rows);
  add_rejection_rows(rows);
  for (size_t i = first; i < rows.size(); ++i) rows[i].as_random().with_double_operands();
  rows.push_back({"aten::native_dropout_backward", native_dropout_backward});
  rows.back().as_pointwise().with_double_operands();
}

}  // namespace torch_tpu::ops
