#include "ops/philox.h"

#include <numbers>

namespace torch_tpu::ops {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

Expr word(Expr like, uint64_t v) { return like.with(like.b().constant_uint(like.value().type(), v)); }
Expr shift_right(Expr x, int bits) { return call("shift_right_logical", x, word(x, bits)); }

struct Product {
  Expr high, low;
};

// x * factor as two 32-bit words. A TPU has no 64-bit multiplier, so the high word is put together from 16-bit halves.
Product multiply(Context& c, Expr x, uint32_t factor) {
  Expr low = x * word(x, factor);
  if (c.platform == Platform::kCpu) {
    Expr wide = x.to(DType::kU64);
    return {shift_right(wide * word(wide, factor), 32).to(DType::kU32), low};
  }
  Expr mask = word(x, 0xFFFF);
  Expr x0 = x & mask, x1 = shift_right(x, 16);
  Expr f0 = word(x, factor & 0xFFFF), f1 = word(x, factor >> 16);
  Expr middle = x1 * f0 + shift_right(x0 * f0, 16);  // below 2^32: (2^16-1)^2 + 2^16-1
  Expr carry = (middle & mask) + x0 * f1;
  return {x1 * f1 + shift_right(middle, 16) + shift_right(carry, 16), low};
}

// Four 32-bit lanes of [blocks] as two arrays of [blocks, 2]. XLA:CPU writes one result per loop, so that a plain
// concatenation evaluates the whole generator once per lane; as one array of 128-bit numbers it is evaluated once.
Values packed_pairs(hlo::Builder& b, const Lanes& lanes) {
  const Shape shape = lanes[0].value().shape();
  auto word = [&](const Expr& x) { return Expr{b, b.bitcast(x, {DType::kU32, shape})}; };
  Value low = b.bitcast(join_words(word(lanes[1]), word(lanes[0])), {DType::kF64, shape});
  Value high = b.bitcast(join_words(word(lanes[3]), word(lanes[2])), {DType::kF64, shape});
  Value packed = b.optimization_barrier({b.complex(low, high)})[0];
  Values pairs;
  for (Value half : {b.real(packed), b.imag(packed)}) {
    Value wide = b.bitcast(half, {DType::kU64, shape});
    pairs.push_back(b.bitcast(wide, {lanes[0].dtype(), {shape[0], 2}}));
  }
  return pairs;
}

// cos and sin of 2 pi u for u in [0, 1), by Taylor's series on the eighth of a turn around each quarter: engines'
// functions take several times as long because they reduce arguments of any size.
std::pair<Expr, Expr> turn(Expr u) {
  Expr quarters = u * 4;
  Expr nearest = floor(quarters + 0.5);
  Expr x = (quarters - nearest) * (std::numbers::pi / 2);
  Expr square = x * x;
  const int terms = u.dtype() == DType::kF64 ? 10 : 6;
  Expr cosine = x.like(1), sine = x.like(1);
  for (int k = terms; k > 0; --k) {
    cosine = 1.0 - square * cosine / ((2.0 * k - 1) * (2.0 * k));
    sine = 1.0 - square * sine / ((2.0 * k) * (2.0 * k + 1));
  }
  sine = sine * x;
  Expr odd = (nearest == 1) | (nearest == 3);
  Expr c = select(odd, sine, cosine), s = select(odd, cosine, sine);
  return {select((nearest == 1) | (nearest == 2), -c, c), select((nearest == 2) | (nearest == 3), -s, s)};
}

}  // namespace

Lanes philox(Context& c, Expr counter, Expr draw, Value state) {
  const Shape shape = counter.value().shape();
  Expr seed{c.b, c.b.broadcast(c.b.reshape(c.b.slice(state, {0}, {1}), {}), shape)};
  Expr k0 = seed.to(DType::kU32), k1 = shift_right(seed, 32).to(DType::kU32);
  Expr c0 = counter.to(DType::kU32), c1 = shift_right(counter, 32).to(DType::kU32);
  Expr c2 = draw, c3 = word(draw, 0);
  for (int round = 0; round < kRounds; ++round) {
    Product p0 = multiply(c, c0, kMultiplier0), p1 = multiply(c, c2, kMultiplier1);
    c0 = p1.high ^ c1 ^ k0;
    c1 = p1.low;
    c2 = p0.high ^ c3 ^ k1;
    c3 = p0.low;
    k0 = k0 + word(k0, kWeyl0);
    k1 = k1 + word(k1, kWeyl1);
  }
  return {c0, c1, c2, c3};
}

DType word_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kU64 : DType::kU32; }

Expr unit_interval(Expr words, DType dtype) {
  if (dtype == DType::kF64) return shift_right(words, 11).to(dtype) * 0x1p-53;
  return shift_right(words, 8).to(DType::kF32) * 0x1p-24;
}

// One bit less than the mantissa holds, so that adding a half is exact.
Expr open_unit_interval(Expr words, DType dtype) {
  if (dtype == DType::kF64) return (shift_right(words, 12).to(dtype) + 0.5) * 0x1p-52;
  return (shift_right(words, 9).to(DType::kF32) + 0.5) * 0x1p-23;
}

Expr join_words(Expr high, Expr low) {
  Expr wide = high.to(DType::kU64);
  return call("shift_left", wide, word(wide, 32)) | low.to(DType::kU64);
}

Random::Random(Context& c, Shape shape)
    : c_(c), shape_(std::move(shape)), count_(element_count(shape_)), blocks_((count_ + 3) / 4) {}

Lanes Random::lanes(Expr draw) const {
  hlo::Builder& b = c_.b;
  Expr block{b, b.iota({DType::kU64, {blocks_}}, 0)};
  Expr offset{b, b.broadcast(b.reshape(b.slice(c_.rng_state, {1}, {2}), {}), {blocks_})};
  return philox(c_, offset + block, {b, b.broadcast(draw, {blocks_})}, c_.rng_state);
}

Expr Random::interleave(const Lanes& lanes) const {
  hlo::Builder& b = c_.b;
  Values columns;
  if (c_.platform == Platform::kCpu && byte_size(lanes[0].dtype()) == 4) {
    columns = packed_pairs(b, lanes);
  } else {
    for (const Expr& lane : lanes) columns.push_back(b.reshape(lane, {blocks_, 1}));
  }
  Value flat = b.reshape(b.concatenate(columns, 1), {4 * blocks_});
  return {b, b.reshape(b.slice(flat, {0}, {count_}), shape_)};
}

Expr Random::bits32(Expr draw) const { return interleave(lanes(draw)); }
Expr Random::bits64(Expr draw) const { return join_words(bits32(draw), bits32(draw + draw.like(1))); }

Expr Random::uniform(DType dtype, Expr draw) const {
  return unit_interval(dtype == DType::kF64 ? bits64(draw) : bits32(draw), dtype);
}

Expr Random::uniform_open(DType dtype, Expr draw) const {
  return open_unit_interval(dtype == DType::kF64 ? bits64(draw) : bits32(draw), dtype);
}

Expr Random::normal(DType dtype) const {
  Lanes words = lanes(draw(0));
  if (dtype == DType::kF64) {
    Lanes low = lanes(draw(1));
    for (size_t i = 0; i < words.size(); ++i) words[i] = join_words(words[i], low[i]);
  }
  Lanes normals = words;
  for (size_t i = 0; i < words.size(); i += 2) {
    Expr radius = sqrt(-2.0 * log(open_unit_interval(words[i], dtype)));
    auto [cosine, sine] = turn(unit_interval(words[i + 1], dtype));
    normals[i] = radius * cosine;
    normals[i + 1] = radius * sine;
  }
  return interleave(normals);
}

Expr Random::normal(DType dtype, Expr draw) const {
  Expr next = draw + draw.like(dtype == DType::kF64 ? 2 : 1);
  Expr radius = sqrt(-2.0 * log(uniform_open(dtype, draw)));
  return radius * turn(uniform(dtype, next)).first;
}

}  // namespace torch_tpu::ops
