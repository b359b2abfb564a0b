// Random numbers for rules: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011), written in 32-bit integer StableHLO so that every platform gives the same bits.
//
// Note: counters. A block is one evaluation of the generator: a 128-bit counter in, four 32-bit words ("lanes") out.
// The host's generator owns {seed, offset} and reserves blocks per call. Element i of a call reads lane i % 4 of block
// offset + i / 4. An element that needs more than 32 bits, or another attempt after a rejection, reads the same lane of
// the same block with another `draw`, which is the counter's third word; so the number of reserved blocks depends on
// the shape alone.
#pragma once

#include <array>

#include "ops/pointwise.h"

namespace torch_tpu::ops {

using Lanes = std::array<Expr, 4>;

// Four u32 arrays of the counters' shape. counter: u64; draw, stream: u32 of the same shape; state: u64[2] {seed,
// offset} (the offset is already part of the counter).
Lanes philox(Context& c, Expr counter, Expr draw, Value state);

// The random words of one call with one element per element of `shape`.
class Random {
 public:
  Random(Context& c, Shape shape);

  Expr bits32(Expr draw) const;  // u32
  Expr bits64(Expr draw) const;  // u64, from draws `draw` and `draw` + 1
  Expr draw(int64_t number) const { return {c_.b, c_.b.scalar_int(DType::kU32, number)}; }

  // Floats: dtype is f32 or f64. f32 consumes one draw, f64 two.
  Expr uniform(DType dtype, Expr draw) const;  // [0, 1), 24 or 53 bits
  Expr uniform(DType dtype) const { return uniform(dtype, draw(0)); }
  Expr uniform_open(DType dtype, Expr draw) const;  // (0, 1), 23 or 52 bits
  Expr uniform_open(DType dtype) const { return uniform_open(dtype, draw(0)); }
  // Standard normal by Box and Muller. The short form pairs neighbouring lanes (f32: draw 0, f64: draws 0 and 1);
  // the long one makes each element from its own words (twice a uniform's draws), for use inside loops.
  Expr normal(DType dtype) const;
  Expr normal(DType dtype, Expr draw) const;

  const Shape& shape() const { return shape_; }

 private:
  Lanes lanes(Expr draw) const;
  Expr interleave(const Lanes& lanes) const;  // four arrays of blocks -> shape

  Context& c_;
  Shape shape_;
  int64_t count_, blocks_;
};

// Words as floats; u32 for f32, u64 for f64.
DType word_dtype(DType dtype);
Expr unit_interval(Expr words, DType dtype);       // [0, 1)
Expr open_unit_interval(Expr words, DType dtype);  // (0, 1)
Expr join_words(Expr high, Expr low);              // two u32 -> u64

}  // namespace torch_tpu::ops
