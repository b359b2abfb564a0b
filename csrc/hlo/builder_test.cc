#include "hlo/builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace torch_tpu::hlo {
namespace {

const Type kVector{DType::kF32, {4}};
const Type kMatrix{DType::kF32, {2, 3}};

std::string text_of(Builder& b, const Values& results) {
  auto text = b.finish(results, "test");
  if (!text.ok()) return "error: " + text.error().message;
  return text.value();
}

// The line of the module that holds the operation.
std::string line_with(Builder& b, const Values& results, const std::string& op) {
  const std::string text = text_of(b, results);
  const size_t at = text.find("\"" + op + "\"");
  if (at == std::string::npos) return text;
  const size_t begin = text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

std::string error_of(Builder& b) { return b.error() ? b.error()->message : ""; }

TEST(Module, NamesParametersResultsAndDonation) {
  Builder b;
  const Value x = b.parameter(kVector), y = b.parameter(kVector, 0);
  const Value sum = b.add(x, y);
  EXPECT_EQ(
      text_of(b, {sum}),
      "module @test {\n"
      "  func.func @main(%a0: tensor<4xf32>, %a1: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {\n"
      "    %0 = \"stablehlo.add\"(%a0, %a1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>\n"
      "    \"func.return\"(%0) : (tensor<4xf32>) -> ()\n"
      "  }\n}\n");
  EXPECT_EQ(b.op_count(), 1);
}

TEST(Module, NoArgumentsNoResultsAndOddNames) {
  Builder b;
  auto text = b.finish({}, "aten::add.Tensor");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text.value(),
            "module @aten__add_Tensor {\n  func.func @main() -> () {\n    \"func.return\"() : () -> ()\n  }\n}\n");
}

TEST(Module, DonationThatCannotBeIsAnError) {
  const auto message = [](int64_t result, const Type& type, int twice) {
    Builder b;
    const Value x = b.parameter(type, result);
    if (twice) b.parameter(type, result);
    auto text = b.finish({b.zeros(kVector)});
    (void)x;
    return text.ok() ? std::string() : text.error().message;
  };
  EXPECT_EQ(message(0, kVector, 0), "");
  EXPECT_EQ(message(0, {DType::kF32, {2, 2}}, 0), "");
  EXPECT_NE(message(1, kVector, 0), "");
  EXPECT_NE(message(0, kMatrix, 0), "");
  EXPECT_NE(message(0, kVector, 1), "");
}

TEST(Module, OriginBecomesALocation) {
  Builder b;
  const Value x = b.parameter(kVector);
  b.set_origin("aten::\"neg\"");
  EXPECT_EQ(line_with(b, {b.neg(x)}, "stablehlo.negate"),
            "    %0 = \"stablehlo.negate\"(%a0) : (tensor<4xf32>) -> tensor<4xf32> loc(\"aten::\\\"neg\\\"\")");
}

std::string literal(const std::function<Value(Builder&)>& make) {
  Builder b;
  const std::string line = line_with(b, {make(b)}, "stablehlo.constant");
  const size_t begin = line.find("dense<");
  if (begin == std::string::npos) return line;
  return line.substr(begin, line.find(" : tensor") - begin);
}

std::string splat(DType dtype, double v) {
  return literal([&](Builder& b) { return b.scalar(dtype, v); });
}

TEST(Constants, AreShortDecimalsOrExactBits) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(splat(DType::kF32, 1), "dense<1.0>");
  EXPECT_EQ(splat(DType::kF32, -0.5), "dense<-0.5>");
  EXPECT_EQ(splat(DType::kF32, -0.0), "dense<-0.0>");
  EXPECT_EQ(splat(DType::kF32, 0.1), "dense<0x3DCCCCCD>");
  EXPECT_EQ(splat(DType::kF64, 0.1), "dense<0.1>");
  EXPECT_EQ(splat(DType::kF64, 1e300), "dense<1.0e+300>");
  EXPECT_EQ(splat(DType::kF64, 1.0 / 3), "dense<0x3FD5555555555555>");
  EXPECT_EQ(splat(DType::kF32, inf), "dense<0x7F800000>");
  EXPECT_EQ(splat(DType::kF32, 1e300), "dense<0x7F800000>");
  EXPECT_EQ(splat(DType::kF64, -inf), "dense<0xFFF0000000000000>");
  EXPECT_EQ(splat(DType::kF32, nan), "dense<0x7FC00000>");
  EXPECT_EQ(splat(DType::kBF16, nan), "dense<0x7FC0>");
  EXPECT_EQ(splat(DType::kBF16, 0.1), "dense<0x3DCD>");
  EXPECT_EQ(splat(DType::kF16, 0.1), "dense<0x2E66>");
  EXPECT_EQ(splat(DType::kF16, 65520), "dense<0x7C00>");
  EXPECT_EQ(splat(DType::kF16, 65519), "dense<65504.0>");
  EXPECT_EQ(splat(DType::kF8E4M3FN, 1), "dense<0x38>");
  EXPECT_EQ(splat(DType::kF8E4M3FN, 500), "dense<0x7E>");
  EXPECT_EQ(splat(DType::kF8E5M2, 1e6), "dense<0x7C>");
  EXPECT_EQ(splat(DType::kF8E4M3FNUZ, 500), "dense<0x80>");
  EXPECT_EQ(splat(DType::kF8E4M3FNUZ, -0.0), "dense<0x00>");
  EXPECT_EQ(splat(DType::kF8E8M0FNU, 448), "dense<0x88>");
}

TEST(Constants, IntegersAreExact) {
  EXPECT_EQ(splat(DType::kBool, 0.5), "dense<true>");
  EXPECT_EQ(splat(DType::kI32, 1e20), "dense<2147483647>");
  EXPECT_EQ(splat(DType::kI32, -1e20), "dense<-2147483648>");
  EXPECT_EQ(splat(DType::kI64, std::numeric_limits<double>::infinity()), "dense<9223372036854775807>");
  EXPECT_EQ(splat(DType::kU8, -3), "dense<0>");
  const auto whole = [](DType dtype, int64_t v) { return literal([&](Builder& b) { return b.scalar_int(dtype, v); }); };
  EXPECT_EQ(whole(DType::kI64, std::numeric_limits<int64_t>::min()), "dense<-9223372036854775808>");
  EXPECT_EQ(whole(DType::kU8, -1), "dense<255>");
  EXPECT_EQ(whole(DType::kI8, 200), "dense<-56>");
  EXPECT_EQ(whole(DType::kU64, -1), "dense<18446744073709551615>");
  EXPECT_EQ(whole(DType::kC64, 2), "dense<(2.0, 0.0)>");
  EXPECT_EQ(literal([](Builder& b) { return b.constant_uint({DType::kU64, {}}, uint64_t{1} << 63); }),
            "dense<9223372036854775808>");
  EXPECT_EQ(literal([](Builder& b) { return b.constant_uint({DType::kBool, {}}, uint64_t{1} << 63); }), "dense<true>");
  EXPECT_EQ(literal([](Builder& b) { return b.constant_complex({DType::kC128, {2}}, {1.5, -2}); }),
            "dense<(1.5, -2.0)>");
}

TEST(Constants, Lists) {
  EXPECT_EQ(literal([](Builder& b) { return b.vector_int(DType::kI32, {1, -2}); }), "dense<[1, -2]>");
  EXPECT_EQ(literal([](Builder& b) { return b.vector_int(DType::kI64, {}); }), "dense<>");
  EXPECT_EQ(literal([](Builder& b) { return b.vector_int(DType::kBool, {1, 0}); }), "dense<[true, false]>");
  EXPECT_EQ(literal([](Builder& b) { return b.vector(DType::kF32, {1, 0.1}); }), "dense<[1.0, 0x3DCCCCCD]>");
  EXPECT_EQ(literal([](Builder& b) { return b.vector_int(DType::kI32, std::vector<int64_t>(33, 258)); }).substr(0, 25),
            "dense<\"0x0201000002010000");
  EXPECT_EQ(literal([](Builder& b) { return b.zeros({DType::kF32, {0, 2}}); }), "dense<>");
}

TEST(Constants, AreEmittedOncePerRegion) {
  Builder b;
  const Value x = b.parameter({DType::kI32, {}});
  EXPECT_EQ(b.scalar_int(DType::kI32, 7), b.scalar(DType::kI32, 7.0));
  EXPECT_EQ(b.op_count(), 1);
  Value inner;
  b.while_loop(
      {x}, [](Builder& r, const Values& v) -> Values { return {r.lt(v[0], r.scalar_int(DType::kI32, 7))}; },
      [&](Builder& r, const Values& v) -> Values {
        inner = r.scalar_int(DType::kI32, 9);
        return {r.add(v[0], r.add(inner, r.scalar_int(DType::kI32, 9)))};
      });
  EXPECT_EQ(b.op_count(), 6);  // 7, compare, 9, add, add, while: 7 is seen inside, 9 is written there once
  EXPECT_NE(b.scalar_int(DType::kI32, 9), inner);
  EXPECT_EQ(error_of(b), "");
}

TEST(Regions, NestAndCaptureOuterValues) {
  Builder b;
  const Value x = b.parameter(kMatrix);
  const Value total = b.reduce_sum(x, {1});
  EXPECT_EQ(text_of(b, {total}),
            "module @test {\n"
            "  func.func @main(%a0: tensor<2x3xf32>) -> tensor<2xf32> {\n"
            "    %0 = \"stablehlo.constant\"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>\n"
            "    %4 = \"stablehlo.reduce\"(%a0, %0) ({\n"
            "    ^bb0(%1: tensor<f32>, %2: tensor<f32>):\n"
            "      %3 = \"stablehlo.add\"(%1, %2) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
            "      \"stablehlo.return\"(%3) : (tensor<f32>) -> ()\n"
            "    }) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>\n"
            "    \"func.return\"(%4) : (tensor<2xf32>) -> ()\n"
            "  }\n}\n");
}

TEST(Regions, IfTakesItsTypesFromTheFirstBranch) {
  Builder b;
  const Value p = b.parameter({DType::kBool, {}}), x = b.parameter(kVector);
  const Values v = b.if_else(
      p, [&](Builder& r) -> Values { return {r.neg(x), r.scalar_int(DType::kI32, 1)}; },
      [&](Builder& r) -> Values { return {x, r.scalar_int(DType::kI32, 2)}; });
  ASSERT_EQ(v.size(), 2u);
  EXPECT_EQ(v[1].type(), (Type{DType::kI32, {}}));
  EXPECT_EQ(error_of(b), "");
  Builder c;
  const Value q = c.parameter({DType::kBool, {}}), y = c.parameter(kVector);
  c.if_else(q, [&](Builder&) -> Values { return {y}; }, [&](Builder&) -> Values { return {q}; });
  EXPECT_EQ(error_of(c), "stablehlo.if: types returned by the region, got <(tensor<i1>)>, expected <(tensor<4xf32>)>");
}

TEST(Regions, AValueOfAClosedRegionIsAnError) {
  Builder b;
  const Value x = b.parameter(kMatrix);
  Value leaked;
  b.reduce({x}, {b.scalar(DType::kF32, 0)}, {0}, [&](Builder& r, const Values& v) -> Values {
    leaked = r.add(v[0], v[1]);
    return {leaked};
  });
  b.neg(leaked);
  EXPECT_NE(error_of(b).find("from inside a closed region"), std::string::npos);
}

TEST(Errors, TheFirstOneIsKeptAndNothingCrashes) {
  Builder b;
  const Value x = b.parameter(kVector), y = b.parameter(kMatrix);
  const Value sum = b.add(x, y);
  EXPECT_EQ(sum.type(), kVector);
  EXPECT_EQ(error_of(b),
            "stablehlo.add: operands of different types, got <tensor<4xf32>, tensor<2x3xf32>>, expected <equal types>");
  b.transpose(y, {0, 0});
  EXPECT_EQ(error_of(b).rfind("stablehlo.add", 0), 0u);
  EXPECT_FALSE(b.finish({sum}).ok());
}

// Every method given absent values, wrong ranks and wrong dtypes: an error, never a crash.
TEST(Errors, EveryMethodSurvivesAbsentValues) {
  const Value none;
  const Region body = [](Builder& b, const Values& v) -> Values { return {b.add(v[0], v[1])}; };
  const std::vector<std::function<void(Builder&)>> calls = {
      [&](Builder& b) { b.neg(none); },
      [&](Builder& b) { b.add(none, none); },
      [&](Builder& b) { b.eq(none, none); },
      [&](Builder& b) { b.is_nan(none); },
      [&](Builder& b) { b.select(none, none, none); },
      [&](Builder& b) { b.clamp(none, none, none); },
      [&](Builder& b) { b.convert(none, DType::kF32); },
      [&](Builder& b) { b.bitcast(none, kVector); },
      [&](Builder& b) { b.complex(none, none); },
      [&](Builder& b) { b.real(none); },
      [&](Builder& b) { b.imag(none); },
      [&](Builder& b) { b.zeros_like(none); },
      [&](Builder& b) { b.full_like(none, 1); },
      [&](Builder& b) { b.reshape(none, {1}); },
      [&](Builder& b) { b.transpose(none, {0}); },
      [&](Builder& b) { b.broadcast(none, {2}); },
      [&](Builder& b) { b.broadcast_in_dim(none, {2}, {0}); },
      [&](Builder& b) { b.slice(none, {0}, {1}); },
      [&](Builder& b) { b.slice_dim(none, 0, 0, 1); },
      [&](Builder& b) { b.pad(none, none, {0}, {0}); },
      [&](Builder& b) { b.concatenate({none}, 0); },
      [&](Builder& b) { b.concatenate({}, 0); },
      [&](Builder& b) { b.reverse(none, {0}); },
      [&](Builder& b) { b.dynamic_slice(none, {none}, {1}); },
      [&](Builder& b) { b.dynamic_update_slice(none, none, {none}); },
      [&](Builder& b) { b.unsqueeze(none, 0); },
      [&](Builder& b) { b.squeeze(none, 0); },
      [&](Builder& b) { b.extent(none, 0, DType::kF32); },
      [&](Builder& b) { b.extents(none, {}, DType::kF32); },
      [&](Builder& b) { b.gather(none, none, {}); },
      [&](Builder& b) { b.scatter(none, none, none, {}, body); },
      [&](Builder& b) { b.reduce(none, none, {0}, "add"); },
      [&](Builder& b) { b.reduce_sum(none, {0}); },
      [&](Builder& b) { b.reduce_max(none, {0}); },
      [&](Builder& b) { b.reduce_min(none, {0}); },
      [&](Builder& b) { b.reduce_window(none, none, {}, "add"); },
      [&](Builder& b) { b.select_and_scatter(none, none, none, {}, Compare::kGE, "add"); },
      [&](Builder& b) { b.sort({none}, 0, true, body); },
      [&](Builder& b) { b.sort({}, 0, true, body); },
      [&](Builder& b) { b.top_k(none, 1); },
      [&](Builder& b) { b.dot(none, none, {}, DType::kF32, Precision::kDefault); },
      [&](Builder& b) { b.convolution(none, none, {}, {}, DType::kF32, Precision::kDefault); },
      [&](Builder& b) { b.cholesky(none, true); },
      [&](Builder& b) { b.triangular_solve(none, none, true, true, true, Transpose::kNone); },
      [&](Builder& b) { b.fft(none, Fft::kFFT, {2}); },
      [&](Builder& b) { b.while_loop({none}, body, body); },
      [&](Builder& b) { b.if_else(none, [](Builder&) { return Values{}; }, [](Builder&) { return Values{}; }); },
      [&](Builder& b) { b.rng_bit_generator(none, {DType::kU32, {2}}, RngAlgorithm::kPhilox); },
      [&](Builder& b) { b.custom_call("x", {none}, {kVector}, ""); },
      [&](Builder& b) { b.optimization_barrier({none}); },
      [&](Builder& b) { b.generic("add", {none, none}, {kVector}, ""); },
      [&](Builder& b) { b.zeros({DType::kInvalid, {}}); },
      [&](Builder& b) { b.iota({DType::kI32, {}}, 0); },
      [&](Builder& b) { b.parameter({DType::kInvalid, {}}); },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    Builder b;
    calls[i](b);
    EXPECT_TRUE(b.error().has_value()) << "call " << i;
  }
}

TEST(Errors, OperandsAreChecked) {
  const std::vector<std::function<void(Builder&, Value, Value)>> calls = {
      [](Builder& b, Value x, Value) { b.unary("exponential", b.convert(x, DType::kI32)); },
      [](Builder& b, Value x, Value) { b.sub(b.convert(x, DType::kBool), b.convert(x, DType::kBool)); },
      [](Builder& b, Value x, Value) { b.logical_and(x, x); },
      [](Builder& b, Value x, Value) { b.lt(b.convert(x, DType::kC64), b.convert(x, DType::kC64)); },
      [](Builder& b, Value x, Value y) { b.select(y, x, x); },
      [](Builder& b, Value x, Value y) { b.clamp(y, x, y); },
      [](Builder& b, Value x, Value) { b.reshape(x, {5}); },
      [](Builder& b, Value, Value y) { b.transpose(y, {1}); },
      [](Builder& b, Value, Value y) { b.broadcast(y, {3}); },
      [](Builder& b, Value x, Value) { b.slice(x, {0}, {5}); },
      [](Builder& b, Value x, Value) { b.slice(x, {0}, {4}, {0}); },
      [](Builder& b, Value x, Value) { b.pad(x, b.scalar_int(DType::kI32, 0), {0}, {1}); },
      [](Builder& b, Value x, Value) { b.pad(x, b.scalar(DType::kF32, 0), {-5}, {0}); },
      [](Builder& b, Value x, Value y) { b.concatenate({x, y}, 0); },
      [](Builder& b, Value x, Value) { b.dynamic_slice(x, {b.scalar(DType::kF32, 0)}, {1}); },
      [](Builder& b, Value x, Value) {
        b.dynamic_update_slice(x, b.zeros({DType::kF32, {5}}), {b.scalar_int(DType::kI32, 0)});
      },
      [](Builder& b, Value x, Value y) { b.dot(x, y, {{}, {}, {0}, {0}}, DType::kF32, Precision::kDefault); },
      [](Builder& b, Value x, Value) { b.reduce(x, b.scalar_int(DType::kI32, 0), {0}, "add"); },
      [](Builder& b, Value x, Value) { b.reduce_sum(x, {1}); },
      [](Builder& b, Value x, Value) {
        b.reduce_window(x, b.scalar(DType::kF32, 0), {{2, 2}, {}, {}, {}, {}, {}}, "add");
      },
      [](Builder& b, Value x, Value) {
        b.sort({x}, 0, true, [](Builder&, const Values& v) -> Values { return {v[0]}; });
      },
      [](Builder& b, Value x, Value) { b.top_k(x, 5); },
      [](Builder& b, Value, Value y) { b.cholesky(y, true); },
      [](Builder& b, Value x, Value) { b.fft(x, Fft::kFFT, {4}); },
      [](Builder& b, Value x, Value) { b.bitcast(x, {DType::kF64, {4}}); },
      [](Builder& b, Value x, Value) {
        b.while_loop(
            {x}, [](Builder& r, const Values&) -> Values { return {r.scalar_int(DType::kBool, 0)}; },
            [](Builder& r, const Values&) -> Values { return {r.scalar(DType::kF32, 0)}; });
      },
      [](Builder& b, Value x, Value) { b.rng_bit_generator(x, {DType::kU32, {2}}, RngAlgorithm::kPhilox); },
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    Builder b;
    const Value x = b.parameter(kVector), y = b.parameter(kMatrix);
    calls[i](b, x, y);
    EXPECT_TRUE(b.error().has_value()) << "call " << i;
    EXPECT_NE(error_of(b).find(", expected <"), std::string::npos) << error_of(b);
  }
}

TEST(Shapes, NoOpsReturnTheOperand) {
  Builder b;
  const Value x = b.parameter(kMatrix);
  EXPECT_EQ(b.reshape(x, {2, 3}), x);
  EXPECT_EQ(b.transpose(x, {0, 1}), x);
  EXPECT_EQ(b.broadcast(x, {2, 3}), x);
  EXPECT_EQ(b.slice(x, {0, 0}, {2, 3}), x);
  EXPECT_EQ(b.pad(x, b.scalar(DType::kF32, 0), {0, 0}, {0, 0}), x);
  EXPECT_EQ(b.concatenate({x}, 1), x);
  EXPECT_EQ(b.convert(x, DType::kF32), x);
  EXPECT_EQ(b.real(x), x);
  EXPECT_EQ(b.op_count(), 1);
}

TEST(Shapes, Results) {
  Builder b;
  const Value x = b.parameter({DType::kF32, {2, 3, 5}});
  EXPECT_EQ(b.transpose(x, {2, 0, 1}).shape(), (Shape{5, 2, 3}));
  EXPECT_EQ(b.slice(x, {0, 1, 0}, {2, 3, 5}, {1, 1, 2}).shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(b.pad(x, b.scalar(DType::kF32, 0), {0, -1, 1}, {1, 0, 0}, {0, 0, 1}).shape(), (Shape{3, 2, 10}));
  EXPECT_EQ(b.concatenate({x, x}, -1).shape(), (Shape{2, 3, 10}));
  EXPECT_EQ(b.unsqueeze(x, -1).shape(), (Shape{2, 3, 5, 1}));
  EXPECT_EQ(b.reduce_sum(x, {2, 0}).shape(), (Shape{3}));
  EXPECT_EQ(b.top_k(x, 2)[1].type(), (Type{DType::kI32, {2, 3, 2}}));
  EXPECT_EQ(b.abs(b.convert(x, DType::kC64)).dtype(), DType::kF32);
  EXPECT_EQ(b.unary("is_finite", x).dtype(), DType::kBool);
  EXPECT_EQ(
      b.reduce_window(x, b.scalar(DType::kF32, 0), {{1, 2, 3}, {1, 1, 2}, {}, {}, {0, 1, 0}, {0, 0, 0}}, "maximum")
          .shape(),
      (Shape{2, 3, 2}));
  EXPECT_EQ(b.fft(x, Fft::kRFFT, {5}).type(), (Type{DType::kC64, {2, 3, 3}}));
  EXPECT_EQ(b.dot(x, x, {{0}, {0}, {2}, {2}}, DType::kF32, Precision::kHighest).shape(), (Shape{2, 3, 3}));
  const Value y = b.parameter({DType::kF32, {1, 4, 6, 6}}), w = b.parameter({DType::kF32, {8, 2, 3, 3}});
  ConvDims dims;
  dims.lhs_spatial = dims.rhs_spatial = dims.out_spatial = {2, 3};
  ConvWindow window;
  window.strides = {2, 2};
  window.pad_low = window.pad_high = {1, 1};
  window.feature_groups = 2;
  EXPECT_EQ(b.convolution(y, w, dims, window, DType::kF32, Precision::kDefault).shape(), (Shape{1, 8, 3, 3}));
  EXPECT_EQ(error_of(b), "");
}

TEST(Shapes, GatherAndScatter) {
  Builder b;
  const Value x = b.parameter({DType::kF32, {2, 10, 4}}), i = b.parameter({DType::kI32, {2, 3, 1}});
  GatherDims dims;
  dims.offset_dims = {2};
  dims.collapsed_slice_dims = {1};
  dims.operand_batching_dims = {0};
  dims.start_indices_batching_dims = {0};
  dims.start_index_map = {1};
  dims.index_vector_dim = 2;
  dims.slice_sizes = {1, 1, 4};
  const Value found = b.gather(x, i, dims);
  EXPECT_EQ(found.shape(), (Shape{2, 3, 4}));
  EXPECT_NE(
      line_with(b, {found}, "stablehlo.gather")
          .find("{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [1], "
                "operand_batching_dims = "
                "[0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = "
                "array<i64: 1, 1, 4>, indices_are_sorted = false}"),
      std::string::npos);
  Builder c;
  const Value y = c.parameter({DType::kF32, {10, 4}}), j = c.parameter({DType::kI32, {3, 1}}),
              u = c.parameter({DType::kF32, {3, 4}});
  ScatterDims how;
  how.update_window_dims = {1};
  how.inserted_window_dims = {0};
  how.scatter_dims_to_operand_dims = {0};
  how.index_vector_dim = 1;
  const Region add = [](Builder& r, const Values& v) -> Values { return {r.add(v[0], v[1])}; };
  const Value sum = c.scatter(y, j, u, how, add);
  EXPECT_NE(text_of(c, {sum}).find(
                "{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
                "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices "
                "= false}"),
            std::string::npos);
  how.inserted_window_dims = {};
  c.scatter(y, j, u, how, add);
  EXPECT_NE(error_of(c), "");
}

TEST(Sums, NarrowFloatsAccumulateInFloat32AndBoolsAreOred) {
  Builder b;
  const Value x = b.parameter({DType::kBF16, {4}}), p = b.parameter({DType::kBool, {4}});
  const Value sum = b.reduce_sum(x, {0}), any = b.reduce_sum(p, {0});
  EXPECT_EQ(sum.dtype(), DType::kBF16);
  const std::string text = text_of(b, {sum, any});
  EXPECT_NE(text.find("\"stablehlo.add\"(%2, %3) : (tensor<f32>, tensor<f32>) -> tensor<f32>"), std::string::npos)
      << text;
  EXPECT_NE(text.find("\"stablehlo.or\""), std::string::npos);
}

}  // namespace
}  // namespace torch_tpu::hlo
