// Every operation of the Builder is written once, its attribute names are checked, and the engine compiles and runs it:
// types and spellings are the engine's, not only ours.
#include <gtest/gtest.h>

#include <functional>

#include "hlo/builder.h"
#include "runtime/test_program.h"

namespace torch_tpu::runtime {
namespace {

using hlo::Builder;
using hlo::Compare;
using hlo::Region;
using hlo::Type;
using hlo::Value;
using hlo::Values;

struct Case {
  const char* name;
  std::function<Values(Builder&)> write;
};

constexpr DType kF32 = DType::kF32, kI32 = DType::kI32;

// Values that no folding can see through would need operands; small ramps are enough to check spellings.
Value ramp(Builder& b, DType dtype, const Shape& shape) {
  Value x = b.iota({kF32, shape}, static_cast<int64_t>(shape.size()) - 1);
  x = b.mul(b.add(x, b.full_like(x, 1)), b.full_like(x, 0.125));
  return b.convert(x, dtype);
}

Values all(const Value& x) { return {x}; }

const Region kAdd = [](Builder& b, const Values& v) -> Values { return {b.add(v[0], v[1])}; };

void run_cases(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Builder b;
    const Values results = c.write(b);
    ASSERT_FALSE(b.error()) << b.error()->message;
    EXPECT_EQ(run_program(b, results, {}).size(), results.size());
  }
}

TEST(BuilderExecution, ElementwiseOfEveryDtype) {
  const std::vector<DType> dtypes = {DType::kBool,   DType::kU8,         DType::kI8,         DType::kI16,
                                     DType::kI32,    DType::kI64,        DType::kU16,        DType::kU32,
                                     DType::kU64,    DType::kF16,        DType::kBF16,       DType::kF32,
                                     DType::kF64,    DType::kC64,        DType::kC128,       DType::kF8E4M3FN,
                                     DType::kF8E5M2, DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ, DType::kF8E8M0FNU};
  for (const DType dtype : dtypes) {
    SCOPED_TRACE(std::string(hlo_name(dtype)));
    Builder b;
    const Value x = ramp(b, dtype, {4});
    Values results = {x, b.select(b.eq(x, x), x, b.ones_like(x)), b.zeros_like(x), b.is_nan(x), b.reshape(x, {2, 2})};
    if (!is_complex(dtype)) {
      const Type scalar{dtype, {}};
      results.push_back(b.max_value(scalar));
      results.push_back(b.min_value(scalar));
      results.push_back(b.max_finite(scalar));
      results.push_back(b.lowest_finite(scalar));
      results.push_back(b.reduce_max(x, {0}));
      results.push_back(b.reduce_min(x, {0}));
      results.push_back(b.clamp(b.min_value(scalar), x, b.max_value(scalar)));
    }
    if (dtype != DType::kF8E8M0FNU) results.push_back(b.reduce_sum(x, {0}));
    if (!is_float8(dtype)) {
      results.push_back(b.add(x, x));
      results.push_back(b.mul(x, x));
    }
    for (const DType to : dtypes) results.push_back(b.convert(x, to));
    ASSERT_FALSE(b.error()) << b.error()->message;
    EXPECT_EQ(run_program(b, results, {}).size(), results.size());
  }
}

TEST(BuilderExecution, UnaryAndBinaryNames) {
  Builder b;
  const Value x = ramp(b, kF32, {4}), c = b.convert(x, DType::kC64), n = ramp(b, kI32, {4}),
              h = ramp(b, DType::kBF16, {4});
  Values results;
  for (const char* op : {"abs",
                         "cbrt",
                         "ceil",
                         "cosine",
                         "exponential",
                         "exponential_minus_one",
                         "floor",
                         "imag",
                         "is_finite",
                         "log",
                         "log_plus_one",
                         "logistic",
                         "negate",
                         "real",
                         "round_nearest_afz",
                         "round_nearest_even",
                         "rsqrt",
                         "sign",
                         "sine",
                         "sqrt",
                         "tan",
                         "tanh",
                         "chlo.acos",
                         "chlo.acosh",
                         "chlo.asin",
                         "chlo.asinh",
                         "chlo.atan",
                         "chlo.atanh",
                         "chlo.bessel_i1e",
                         "chlo.cosh",
                         "chlo.digamma",
                         "chlo.erf",
                         "chlo.erf_inv",
                         "chlo.erfc",
                         "chlo.is_inf",
                         "chlo.is_neg_inf",
                         "chlo.is_pos_inf",
                         "chlo.lgamma",
                         "chlo.sinh",
                         "chlo.square",
                         "chlo.tan"}) {
    results.push_back(b.unary(op, x));
    results.push_back(b.unary(op, h));
  }
  for (const char* op : {"abs",        "cosine",    "exponential", "exponential_minus_one",
                         "imag",       "is_finite", "log",         "log_plus_one",
                         "logistic",   "negate",    "real",        "rsqrt",
                         "sign",       "sine",      "sqrt",        "tan",
                         "tanh",       "chlo.acos", "chlo.acosh",  "chlo.asin",
                         "chlo.asinh", "chlo.atan", "chlo.atanh",  "chlo.conj",
                         "chlo.cosh",  "chlo.sinh", "chlo.square", "chlo.tan"})
    results.push_back(b.unary(op, c));
  for (const char* op : {"abs", "count_leading_zeros", "floor", "negate", "not", "popcnt", "sign", "is_finite"})
    results.push_back(b.unary(op, n));
  for (const char* op : {"abs", "sign"}) results.push_back(b.unary(op, ramp(b, DType::kU8, {4})));
  for (const char* op : {"add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder", "subtract",
                         "chlo.next_after", "chlo.polygamma", "chlo.zeta"})
    results.push_back(b.binary(op, x, x));
  for (const char* op : {"add", "atan2", "divide", "multiply", "power", "subtract"})
    results.push_back(b.binary(op, c, c));
  for (const char* op : {"add", "and", "divide", "maximum", "multiply", "or", "power", "remainder", "shift_left",
                         "shift_right_arithmetic", "shift_right_logical", "subtract", "xor"})
    results.push_back(b.binary(op, n, n));
  const Value p = b.convert(x, DType::kBool);
  for (const char* op : {"add", "and", "maximum", "minimum", "multiply", "or", "xor"})
    results.push_back(b.binary(op, p, p));
  for (const Compare direction : {Compare::kEQ, Compare::kNE, Compare::kLT, Compare::kLE, Compare::kGT, Compare::kGE})
    for (const Value& v : {x, n, p}) results.push_back(b.compare(v, v, direction));
  results.push_back(b.compare(x, x, Compare::kLT, hlo::CompareKind::kTotalOrder));
  results.push_back(b.compare(n, n, Compare::kLT, hlo::CompareKind::kTotalOrder));
  results.push_back(b.compare(c, c, Compare::kNE));
  ASSERT_FALSE(b.error()) << b.error()->message;
  EXPECT_EQ(run_program(b, results, {}).size(), results.size());
}

TEST(BuilderExecution, ShapesAndIndexing) {
  run_cases({
      {"moves",
       [](Builder& b) -> Values {
         const Value x = ramp(b, kF32, {2, 3, 4}), zero = b.scalar(kF32, 0), one = b.scalar_int(kI32, 1);
         return {b.transpose(x, {2, 0, 1}),
                 b.slice(x, {0, 1, 0}, {2, 3, 4}, {1, 1, 2}),
                 b.slice_dim(x, -1, 1, 3),
                 b.pad(x, zero, {0, -1, 1}, {1, 0, 0}, {0, 0, 2}),
                 b.concatenate({x, x}, 1),
                 b.reverse(x, {0, 2}),
                 b.dynamic_slice(x, {one, one, one}, {1, 2, 3}),
                 b.dynamic_update_slice(x, b.slice_dim(x, 1, 0, 1), {one, one, one}),
                 b.unsqueeze(x, 1),
                 b.broadcast(b.slice_dim(x, 0, 0, 1), {5, 2, 3, 4}),
                 b.broadcast_in_dim(zero, {2, 2}, {}),
                 b.extent(x, 1, kF32),
                 b.extents(x, {0, 2}, DType::kI64),
                 b.iota({DType::kBool, {3}}, 0)};
       }},
      {"lists",
       [](Builder& b) -> Values {
         return {b.vector_int(kI32, std::vector<int64_t>(40, 3)),
                 b.vector_int(DType::kI64, {1, 2}),
                 b.vector_int(DType::kBool, std::vector<int64_t>(40, 1)),
                 b.vector(DType::kF64, std::vector<double>(40, 0.1)),
                 b.vector(DType::kBF16, {1, 0.1}),
                 b.vector(DType::kF8E5M2, std::vector<double>(40, 2)),
                 b.vector_int(kI32, {}),
                 b.zeros({kF32, {0, 2}}),
                 b.constant_complex({DType::kC64, {2}}, {0.1, -1})};
       }},
      {"gather with batching",
       [](Builder& b) -> Values {
         hlo::GatherDims dims;
         dims.offset_dims = {2};
         dims.collapsed_slice_dims = {1};
         dims.operand_batching_dims = {0};
         dims.start_indices_batching_dims = {0};
         dims.start_index_map = {1};
         dims.index_vector_dim = 2;
         dims.slice_sizes = {1, 1, 4};
         return all(b.gather(ramp(b, kF32, {2, 10, 4}), b.iota({kI32, {2, 3, 1}}, 1), dims));
       }},
      {"variadic scatter with batching",
       [](Builder& b) -> Values {
         hlo::ScatterDims dims;
         dims.update_window_dims = {2};
         dims.inserted_window_dims = {1};
         dims.input_batching_dims = {0};
         dims.scatter_indices_batching_dims = {0};
         dims.scatter_dims_to_operand_dims = {1};
         dims.index_vector_dim = 2;
         const Value x = ramp(b, kF32, {2, 10, 4}), u = ramp(b, kF32, {2, 3, 4});
         return b.scatter({x, b.convert(x, kI32)}, b.iota({DType::kI64, {2, 3, 1}}, 1), {u, b.convert(u, kI32)}, dims,
                          [](Builder& r, const Values& v) -> Values { return {r.add(v[0], v[2]), r.max(v[1], v[3])}; });
       }},
  });
}

TEST(BuilderExecution, ReductionsWindowsAndOrder) {
  run_cases({
      {"variadic reduce",
       [](Builder& b) -> Values {
         const Value x = ramp(b, kF32, {3, 4}), i = b.iota({kI32, {3, 4}}, 0);
         return b.reduce({x, i}, {b.scalar(kF32, 0), b.scalar_int(kI32, 0)}, {0},
                         [](Builder& r, const Values& v) -> Values {
                           const Value p = r.gt(v[0], v[2]);
                           return {r.select(p, v[0], v[2]), r.select(p, v[1], v[3])};
                         });
       }},
      {"reduce over unsorted dims and none",
       [](Builder& b) -> Values {
         const Value x = ramp(b, DType::kBF16, {3, 4, 2});
         return {b.reduce_sum(x, {2, 0}), b.reduce_sum(x, {}), b.reduce_sum(b.zeros({kF32, {0, 3}}), {0})};
       }},
      {"reduce_window",
       [](Builder& b) -> Values {
         const Value x = ramp(b, kF32, {1, 1, 6, 6}), zero = b.scalar(kF32, 0);
         hlo::Window w;
         w.dims = {1, 1, 2, 2};
         hlo::Window full{{1, 1, 3, 2}, {1, 1, 2, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}, {0, 0, 1, 0}, {0, 0, 2, 1}};
         const Value i = b.iota({kI32, {1, 1, 6, 6}}, 3);
         const Values both = b.reduce_window(
             {x, i}, {zero, b.scalar_int(kI32, 0)}, w,
             [](Builder& r, const Values& v) -> Values { return {r.add(v[0], v[2]), r.max(v[1], v[3])}; });
         return {b.reduce_window(x, zero, w, "maximum"), b.reduce_window(x, zero, full, "add"), both[0], both[1]};
       }},
      {"select_and_scatter",
       [](Builder& b) -> Values {
         hlo::Window w;
         w.dims = w.strides = {1, 1, 2, 2};
         return all(b.select_and_scatter(ramp(b, kF32, {1, 1, 4, 4}), ramp(b, kF32, {1, 1, 2, 2}), b.scalar(kF32, 0), w,
                                         Compare::kGE, "add"));
       }},
      {"sort",
       [](Builder& b) -> Values {
         return b.sort({ramp(b, kF32, {3, 4}), b.iota({kI32, {3, 4}}, 1)}, -1, true,
                       [](Builder& r, const Values& v) -> Values {
                         return {r.compare(v[0], v[1], Compare::kGT, hlo::CompareKind::kTotalOrder)};
                       });
       }},
      {"top_k", [](Builder& b) -> Values { return b.top_k(ramp(b, kF32, {2, 8}), 3); }},
  });
}

TEST(BuilderExecution, ContractionsAndTransforms) {
  run_cases({
      {"dot",
       [](Builder& b) -> Values {
         const Value x = ramp(b, kF32, {2, 3, 4}), i = ramp(b, DType::kI8, {3, 4}), c = b.convert(x, DType::kC64);
         return {b.dot(x, x, {{0}, {0}, {2}, {2}}, kF32, hlo::Precision::kHighest),
                 b.dot(i, i, {{}, {}, {1}, {1}}, kI32, hlo::Precision::kHighest),
                 b.dot(c, c, {{}, {}, {2}, {2}}, DType::kC64, hlo::Precision::kHigh),
                 b.dot(b.convert(x, DType::kBF16), b.convert(x, DType::kBF16), {{}, {}, {0, 1, 2}, {0, 1, 2}}, kF32,
                       hlo::Precision::kDefault)};
       }},
      {"convolution",
       [](Builder& b) -> Values {
         hlo::ConvDims dims;
         dims.lhs_spatial = dims.rhs_spatial = dims.out_spatial = {2, 3};
         hlo::ConvWindow grouped;
         grouped.strides = {2, 2};
         grouped.pad_low = grouped.pad_high = {1, 1};
         grouped.feature_groups = 2;
         hlo::ConvWindow transposed;
         transposed.lhs_dilation = {2, 2};
         transposed.rhs_dilation = {1, 2};
         transposed.pad_low = {1, 1};
         transposed.pad_high = {2, 2};
         transposed.reversal = {true, true};
         hlo::ConvDims swapped = dims;
         swapped.rhs_out = 1;
         swapped.rhs_in = 0;
         hlo::ConvDims last{0, 3, {1, 2}, 3, 2, {0, 1}, 0, 3, {1, 2}};
         return {b.convolution(ramp(b, kF32, {1, 4, 6, 6}), ramp(b, kF32, {8, 2, 3, 3}), dims, grouped, kF32,
                               hlo::Precision::kHighest),
                 b.convolution(ramp(b, kF32, {1, 4, 4, 4}), ramp(b, kF32, {4, 6, 3, 3}), swapped, transposed, kF32,
                               hlo::Precision::kDefault),
                 b.convolution(ramp(b, kF32, {2, 4, 4, 3}), ramp(b, kF32, {2, 2, 3, 5}), last, {}, kF32,
                               hlo::Precision::kDefault)};
       }},
      {"convolution of batch groups, one and three dimensions, none",
       [](Builder& b) -> Values {
         hlo::ConvDims one, three, none;
         one.lhs_spatial = one.rhs_spatial = one.out_spatial = {2};
         three.lhs_spatial = three.rhs_spatial = three.out_spatial = {2, 3, 4};
         hlo::ConvWindow grouped;
         grouped.batch_groups = 2;
         return {b.convolution(ramp(b, kF32, {4, 3, 8}), ramp(b, kF32, {2, 3, 3}), one, grouped, kF32,
                               hlo::Precision::kDefault),
                 b.convolution(ramp(b, kF32, {1, 2, 4, 4, 4}), ramp(b, kF32, {3, 2, 2, 2, 2}), three, {}, kF32,
                               hlo::Precision::kDefault),
                 b.convolution(ramp(b, kF32, {4, 3}), ramp(b, kF32, {2, 3}), none, {}, kF32, hlo::Precision::kDefault)};
       }},
      {"linear algebra",
       [](Builder& b) -> Values {
         const Type square{kF32, {2, 4, 4}};
         const Value eye = b.convert(b.eq(b.iota({kI32, square.shape}, 1), b.iota({kI32, square.shape}, 2)), kF32);
         const Value right = ramp(b, kF32, {2, 4, 3});
         return {b.cholesky(eye, true), b.cholesky(eye, false),
                 b.triangular_solve(eye, right, true, true, false, hlo::Transpose::kNone),
                 b.triangular_solve(eye, b.transpose(right, {0, 2, 1}), false, false, true, hlo::Transpose::kTranspose),
                 b.triangular_solve(eye, right, true, true, false, hlo::Transpose::kAdjoint)};
       }},
      {"fft",
       [](Builder& b) -> Values {
         const Value x = ramp(b, kF32, {2, 3, 8}), c = b.convert(x, DType::kC64), half = b.slice_dim(c, 2, 0, 5);
         return {b.fft(c, hlo::Fft::kFFT, {8}), b.fft(c, hlo::Fft::kIFFT, {3, 8}), b.fft(x, hlo::Fft::kRFFT, {2, 3, 8}),
                 b.fft(half, hlo::Fft::kIRFFT, {8}), b.fft(b.convert(x, DType::kF64), hlo::Fft::kRFFT, {8})};
       }},
  });
}

TEST(BuilderExecution, ControlRandomAndCalls) {
  run_cases({
      {"while",
       [](Builder& b) -> Values {
         const Value limit = b.scalar_int(kI32, 5);
         return b.while_loop(
             {b.scalar_int(kI32, 0), ramp(b, kF32, {3})},
             [&](Builder& r, const Values& v) -> Values { return {r.lt(v[0], limit)}; },
             [](Builder& r, const Values& v) -> Values {
               return {r.add(v[0], r.scalar_int(kI32, 1)), r.mul(v[1], r.full_like(v[1], 2))};
             });
       }},
      {"if, nested in a reducer's sibling",
       [](Builder& b) -> Values {
         const Value x = ramp(b, kF32, {3}), p = b.lt(b.reduce_sum(x, {0}), b.scalar(kF32, 0));
         return b.if_else(
             p, [&](Builder& r) -> Values { return {r.reduce(x, r.scalar(kF32, 0), {0}, "add"), x}; },
             [&](Builder& r) -> Values {
               return r.if_else(
                   p, [&](Builder& s) -> Values { return {s.scalar(kF32, 1), s.neg(x)}; },
                   [&](Builder& s) -> Values { return {s.scalar(kF32, 2), x}; });
             });
       }},
      {"random bits",
       [](Builder& b) -> Values {
         const Values philox = b.rng_bit_generator(b.constant_uint({DType::kU64, {2}}, 7), {DType::kU32, {5}},
                                                   hlo::RngAlgorithm::kPhilox);
         const Values threefry = b.rng_bit_generator(b.constant_uint({DType::kU64, {2}}, 7), {DType::kU64, {5}},
                                                     hlo::RngAlgorithm::kThreeFry);
         return {philox[0], philox[1], threefry[0], threefry[1]};
       }},
      {"barriers",
       [](Builder& b) -> Values {
         const Value x = ramp(b, kF32, {3});
         const Value one = b.optimization_barrier({x})[0];
         const Values two = b.optimization_barrier({x, b.neg(x)});
         return {one, two[0], two[1]};
       }},
      {"generic and custom calls",
       [](Builder& b) -> Values {
         const Value x = ramp(b, kF32, {4, 4});
         const Values qr = b.custom_call("Qr", {x}, {{kF32, {4, 4}}, {kF32, {4}}}, "");
         const Values small =
             b.generic("reduce_precision", {x}, {x.type()}, "exponent_bits = 8 : i32, mantissa_bits = 7 : i32");
         const Values mapped = b.generic("reduce", {x, b.scalar(kF32, 0)}, {{kF32, {4}}}, "dimensions = array<i64: 0>",
                                         {{{{kF32, {}}, {kF32, {}}}, kAdd}});
         return {qr[0], qr[1], small[0], mapped[0]};
       }},
      {"an origin with quotes",
       [](Builder& b) -> Values {
         b.set_origin("aten::\"add\"\n\\");
         return all(ramp(b, kF32, {3}));
       }},
  });
}

// A donated argument may give its memory to a result of another shape and of equal size.
TEST(BuilderExecution, DonationAcrossShapes) {
  Builder b;
  const Type type{kF32, {6}};
  const Value x = b.parameter(type, 0);
  Tensor input{type, Bytes(24, 0)};
  const auto got = run_program(b, {b.reshape(b.add(x, b.ones_like(x)), {2, 3})}, {input});
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0][3], 0x3F);
}

}  // namespace
}  // namespace torch_tpu::runtime
