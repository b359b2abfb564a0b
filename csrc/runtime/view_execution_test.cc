// Executes programs of hlo/ on the embedded engine: random views read and written against a byte-wise host reference,
// and the conversions and constants whose PyTorch meaning the engine does not have by itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "hlo/builder.h"
#include "hlo/float_bits.h"
#include "hlo/view.h"
#include "runtime/test_program.h"

namespace torch_tpu::runtime {
namespace {

using hlo::Builder;
using hlo::Type;
using hlo::Value;
// --- the reference: strides over bytes -------------------------------------------------------------------------------

// Calls `visit(position in the view, byte offset in the storage)` in row-major order.
void walk(const ViewSpec& view, const std::function<void(int64_t, int64_t)>& visit) {
  const int64_t size = byte_size(view.dtype), count = element_count(view.sizes);
  Shape index(view.sizes.size(), 0);
  for (int64_t n = 0; n < count; ++n) {
    int64_t at = view.offset;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * view.strides[d];
    visit(n, at * size);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < view.sizes[d]) break;
      index[d] = 0;
    }
  }
}

// Flips the sign bits that conj and neg mean; only float kinds come here with a bit set.
void flip(unsigned char* element, const ViewSpec& view) {
  const int64_t size = byte_size(view.dtype);
  if (is_complex(view.dtype)) {
    if (view.neg) element[size / 2 - 1] ^= 0x80;
    if (view.neg != view.conj) element[size - 1] ^= 0x80;
  } else if (view.neg) {
    element[size - 1] ^= 0x80;
  }
}

Bytes read_reference(const Bytes& storage, const ViewSpec& view) {
  const int64_t size = byte_size(view.dtype);
  Bytes out(element_count(view.sizes) * size);
  walk(view, [&](int64_t n, int64_t at) {
    std::memcpy(&out[n * size], &storage[at], size);
    if (is_bool(view.dtype)) out[n] = out[n] != 0;
    flip(&out[n * size], view);
  });
  return out;
}

Bytes write_reference(Bytes storage, const ViewSpec& view, const Bytes& x) {
  const int64_t size = byte_size(view.dtype);
  walk(view, [&](int64_t n, int64_t at) {
    std::memcpy(&storage[at], &x[n * size], size);
    flip(&storage[at], view);
  });
  return storage;
}

// --- random cases ----------------------------------------------------------------------------------------------------

class Cases {
 public:
  explicit Cases(unsigned seed) : random_(seed) {}

  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  template <typename T>
  T one_of(const std::vector<T>& options) {
    return options[pick(0, static_cast<int64_t>(options.size()) - 1)];
  }

  // Bytes that are exact under every float interpretation used here: no NaN, no infinity, no denormal, which
  // engines may quieten or flush. Every byte is between 0x30 and 0x4F, also as a leading byte of a float.
  Bytes bytes(const Type& type) {
    Bytes out(element_count(type.shape) * byte_size(type.dtype));
    for (auto& byte : out) byte = is_bool(type.dtype) ? pick(0, 1) : pick(0x30, 0x4F);
    return out;
  }

  Shape shape(int64_t largest_rank) {
    Shape out;
    for (int64_t i = pick(0, largest_rank); i > 0; --i) out.push_back(pick(0, 19) == 0 ? pick(0, 1) : pick(1, 5));
    return out;
  }

  // A view of a storage of `elements` elements, by one of the ways in which PyTorch makes views.
  ViewSpec view(const Type& base, DType dtype, int64_t elements) {
    ViewSpec v;
    v.dtype = dtype;
    const bool same = byte_size(dtype) == byte_size(base.dtype);
    const int64_t kind = pick(0, 9);
    if (kind == 0 && elements > 0) return strided(dtype, elements);
    v.sizes = same && kind < 8 ? base.shape : regrouped(elements);
    v.strides = contiguous_strides(v.sizes);
    for (int64_t i = pick(0, 4); i > 0; --i) change(v);
    return v;
  }

 private:
  // Some factorisation of the count.
  Shape regrouped(int64_t count) {
    Shape out;
    if (count == 0) return {0, pick(0, 3)};
    for (int64_t factor : {5, 3, 2, 2, 3, 2})
      if (count % factor == 0 && pick(0, 2)) {
        out.push_back(factor);
        count /= factor;
      }
    out.insert(out.begin() + pick(0, static_cast<int64_t>(out.size())), count);
    return out;
  }

  ViewSpec strided(DType dtype, int64_t elements) {
    for (;;) {
      ViewSpec v{dtype, {}, {}, pick(0, elements - 1), false, false};
      int64_t highest = v.offset;
      for (int64_t i = pick(0, 3); i > 0; --i) {
        v.sizes.push_back(pick(1, 4));
        v.strides.push_back(pick(0, 7));
        highest += (v.sizes.back() - 1) * v.strides.back();
      }
      if (highest < elements) return v;
    }
  }

  void change(ViewSpec& v) {
    const auto rank = static_cast<int64_t>(v.sizes.size());
    const int64_t d = rank ? pick(0, rank - 1) : 0;
    switch (pick(0, 5)) {
      case 0:  // transpose
        if (rank > 1) {
          const int64_t e = pick(0, rank - 1);
          std::swap(v.sizes[d], v.sizes[e]);
          std::swap(v.strides[d], v.strides[e]);
        }
        break;
      case 1:  // slice with a step
        if (rank && v.sizes[d] > 0) {
          const int64_t start = pick(0, v.sizes[d] - 1), step = pick(1, 3);
          v.offset += start * v.strides[d];
          v.sizes[d] = pick(1, (v.sizes[d] - start + step - 1) / step);
          v.strides[d] *= step;
        }
        break;
      case 2:  // select
        if (rank && v.sizes[d] > 0) {
          v.offset += pick(0, v.sizes[d] - 1) * v.strides[d];
          v.sizes.erase(v.sizes.begin() + d);
          v.strides.erase(v.strides.begin() + d);
        }
        break;
      case 3:  // unsqueeze and expand
        if (rank < 5) {
          v.sizes.insert(v.sizes.begin() + d, pick(1, 3));
          v.strides.insert(v.strides.begin() + d, 0);
        }
        break;
      case 4:  // unfold: windows that may overlap
        if (rank && rank < 5 && v.sizes[d] > 1) {
          const int64_t window = pick(1, v.sizes[d]), step = pick(1, 2);
          v.sizes.push_back(window);
          v.strides.push_back(v.strides[d]);
          v.sizes[d] = (v.sizes[d] - window) / step + 1;
          v.strides[d] *= step;
        }
        break;
      default:  // diagonal
        if (rank > 1 && d > 0) {
          v.sizes[d - 1] = std::min(v.sizes[d - 1], v.sizes[d]);
          v.strides[d - 1] += v.strides[d];
          v.sizes.erase(v.sizes.begin() + d);
          v.strides.erase(v.strides.begin() + d);
        }
    }
  }

  std::mt19937 random_;
};

std::string describe(const Type& base, const ViewSpec& v) {
  return base.text() + " viewed " + std::string(hlo::Type{v.dtype, v.sizes}.text()) + " strides " +
         to_string(v.strides) + " offset " + std::to_string(v.offset) + (v.conj ? " conj" : "") + (v.neg ? " neg" : "");
}

// Many views in one program: a compile costs far more than a view.
constexpr int kBatch = 20;

class RandomViews : public testing::Test {
 protected:
  struct Case {
    Type base;
    ViewSpec view;
    Tensor storage, update;
  };

  static std::vector<Case> batch(Cases& random) {
    const std::vector<DType> dtypes = {DType::kBool, DType::kU8,  DType::kI16,  DType::kF16,
                                       DType::kBF16, DType::kI32, DType::kF32,  DType::kI64,
                                       DType::kF64,  DType::kC64, DType::kC128, DType::kF8E5M2};
    std::vector<Case> cases;
    while (cases.size() < kBatch) {
      Case c;
      c.base = {random.one_of(dtypes), random.shape(4)};
      DType dtype = random.pick(0, 2) ? c.base.dtype : random.one_of(dtypes);
      // Our bools hold 0 and 1 only: what other dtypes' bytes mean as bool, or the other way round, is tested apart.
      if (is_bool(dtype) != is_bool(c.base.dtype)) dtype = c.base.dtype;
      const int64_t elements = element_count(c.base.shape) * byte_size(c.base.dtype) / byte_size(dtype);
      c.view = random.view(c.base, dtype, elements);
      if (is_complex(dtype)) c.view.conj = random.pick(0, 3) == 0;
      if (is_float(dtype) || is_complex(dtype)) c.view.neg = random.pick(0, 5) == 0;
      if (element_count(c.view.sizes) > 4000) continue;
      c.storage = {c.base, random.bytes(c.base)};
      const Type type{dtype, c.view.sizes};
      c.update = {type, random.bytes(type)};
      cases.push_back(std::move(c));
    }
    return cases;
  }
};

TEST_F(RandomViews, ReadAndWriteLikeStrides) {
  const char* fixed = std::getenv("TORCH_TPU_TEST_SEED");
  const unsigned seed = fixed ? static_cast<unsigned>(std::strtoul(fixed, nullptr, 10)) : std::random_device{}();
  std::printf("seed %u (TORCH_TPU_TEST_SEED repeats it)\n", seed);
  Cases random(seed);
  std::vector<int> routes(5, 0);
  for (int round = 0; round < 20; ++round) {
    const auto cases = batch(random);
    Builder b;
    hlo::Values results;
    std::vector<Tensor> inputs;
    for (const Case& c : cases) {
      const Value base = b.parameter(c.base), x = b.parameter(c.update.type);
      hlo::ViewRoute route;
      results.push_back(hlo::read_view(b, base, c.view, &route));
      ++routes[static_cast<int>(route)];
      results.push_back(hlo::write_view(b, base, c.view, x));
      ASSERT_FALSE(b.error()) << b.error()->message;
      EXPECT_EQ(results[results.size() - 2].type(), c.update.type);
      inputs.push_back(c.storage);
      inputs.push_back(c.update);
    }
    const auto got = run_program(b, results, inputs);
    ASSERT_EQ(got.size(), results.size());
    for (size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      ASSERT_EQ(got[2 * i], read_reference(c.storage.bytes, c.view)) << "read " << describe(c.base, c.view);
      ASSERT_EQ(got[2 * i + 1], write_reference(c.storage.bytes, c.view, c.update.bytes))
          << "write " << describe(c.base, c.view);
      const Type& after = results[2 * i + 1].type();
      if (after != c.base) {
        EXPECT_EQ(after.dtype, c.view.dtype) << describe(c.base, c.view);
        EXPECT_EQ(got[2 * i + 1].size(), c.storage.bytes.size()) << describe(c.base, c.view);
      }
    }
  }
  for (size_t i = 0; i < routes.size(); ++i) EXPECT_GT(routes[i], 0) << "route " << i;
}

// --- bool, conversions, constants ------------------------------------------------------------------------------------

template <typename T>
Tensor tensor(DType dtype, const std::vector<T>& values) {
  Tensor t{{dtype, {static_cast<int64_t>(values.size())}}, Bytes(values.size() * sizeof(T))};
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}

// Real and imaginary parts in turn.
Tensor complex_floats(const std::vector<float>& parts) {
  Tensor t = tensor(DType::kF32, parts);
  t.type = {DType::kC64, {static_cast<int64_t>(parts.size()) / 2}};
  return t;
}

template <typename T>
std::vector<T> values(const Bytes& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Execution, BytesAndBools) {
  Builder b;
  const Value bytes = b.parameter({DType::kU8, {4}}), flags = b.parameter({DType::kBool, {4}});
  const ViewSpec as_flags{DType::kBool, {4}, {1}, 0, false, false}, as_word{DType::kI32, {1}, {1}, 0, false, false};
  const auto got =
      run_program(b, {hlo::read_view(b, bytes, as_flags), hlo::read_view(b, flags, as_word)},
                  {tensor<uint8_t>(DType::kU8, {0, 1, 2, 255}), tensor<uint8_t>(DType::kBool, {1, 0, 1, 1})});
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0], (Bytes{0, 1, 1, 1}));
  EXPECT_EQ(got[1], (Bytes{1, 0, 1, 1}));
}

// Expected values: PyTorch 2.13 CPU on x86-64.
TEST(Execution, FloatsToIntegersAsPyTorch) {
  const std::vector<float> x = {-1, 300, -1.7f, 255.9f, 1e10f, -1e10f, kNan, kInf, -kInf, 3e9f, -129, 70000};
  for (const DType from : {DType::kF32, DType::kF64}) {
    Builder b;
    Value p = b.parameter({DType::kF32, {static_cast<int64_t>(x.size())}});
    p = b.convert(p, from);
    const auto got = run_program(
        b,
        {b.convert(p, DType::kU8), b.convert(p, DType::kI8), b.convert(p, DType::kI16), b.convert(p, DType::kU16),
         b.convert(p, DType::kU32), b.convert(p, DType::kI64), b.convert(p, DType::kBool)},
        {tensor(DType::kF32, x)});
    ASSERT_EQ(got.size(), 7u);
    EXPECT_EQ(values<uint8_t>(got[0]), (std::vector<uint8_t>{255, 44, 255, 255, 0, 0, 0, 0, 0, 0, 127, 112}));
    EXPECT_EQ(values<int8_t>(got[1]), (std::vector<int8_t>{-1, 44, -1, -1, 0, 0, 0, 0, 0, 0, 127, 112}));
    EXPECT_EQ(values<int16_t>(got[2]), (std::vector<int16_t>{-1, 300, -1, 255, 0, 0, 0, 0, 0, 0, -129, 4464}));
    EXPECT_EQ(values<uint16_t>(got[3]), (std::vector<uint16_t>{65535, 300, 65535, 255, 0, 0, 0, 0, 0, 0, 65407, 4464}));
    const auto u32 = values<uint32_t>(got[4]);
    EXPECT_EQ(u32[0], 4294967295u);
    EXPECT_EQ(u32[9], 3000000000u);
    EXPECT_EQ(u32[10], 4294967167u);
    EXPECT_EQ(values<int64_t>(got[5])[4], 10000000000);
    EXPECT_EQ(got[6], Bytes(x.size(), 1));
  }
}

TEST(Execution, UnsignedLongs) {
  Builder b;
  const Value p = b.parameter({DType::kF64, {5}});
  const auto got =
      run_program(b, {b.convert(p, DType::kU64)}, {tensor<double>(DType::kF64, {-1, 0.5, 3e9, 1e19, 0x1p63})});
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(values<uint64_t>(got[0]),
            (std::vector<uint64_t>{~uint64_t{0}, 0, 3000000000, 10000000000000000000u, uint64_t{1} << 63}));
}

// Every narrow float: the engine's conversion, our constants' rounding and the value of every pattern agree.
TEST(Execution, NarrowFloatsRoundAsPyTorch) {
  std::vector<float> x = {0,     -0.0f, 1,   -1,  0.1f, 464,   465,   448,   500,   57344,         61440,         61439,
                          70000, 240,   248, 249, 1e9f, -1e9f, 1e-3f, 1e-5f, 3e-8f, 0.0009765625f, 0.0146484375f, kInf,
                          -kInf};
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 20);
  for (int i = 0; i < 500; ++i) x.push_back(normal(random));
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF8E4M3FN, DType::kF8E5M2, DType::kF8E4M3FNUZ,
                            DType::kF8E5M2FNUZ, DType::kF8E8M0FNU}) {
    Builder b;
    const Value p = b.parameter({DType::kF32, {static_cast<int64_t>(x.size())}});
    const Value narrow = b.convert(p, dtype);
    std::vector<double> wide(x.begin(), x.end());
    const auto got =
        run_program(b, {narrow, b.vector(dtype, wide), b.convert(narrow, DType::kF64)}, {tensor(DType::kF32, x)});
    ASSERT_EQ(got.size(), 3u);
    const int64_t size = byte_size(dtype);
    const auto decoded = values<double>(got[2]);
    for (size_t i = 0; i < x.size(); ++i) {
      uint64_t converted = 0, constant = 0;
      std::memcpy(&converted, &got[0][i * size], size);
      std::memcpy(&constant, &got[1][i * size], size);
      EXPECT_EQ(constant, hlo::float_bits(dtype, x[i])) << hlo_name(dtype) << " of " << x[i];
      const double expected = hlo::float_value(dtype, constant);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(decoded[i])) << hlo_name(dtype) << " of " << x[i];
      } else {
        EXPECT_EQ(converted, constant) << hlo_name(dtype) << " of " << x[i];
        EXPECT_EQ(decoded[i], expected) << hlo_name(dtype) << " of " << x[i];
      }
    }
  }
}

TEST(Execution, BoolAndComplexConversions) {
  Builder b;
  const Value p = b.parameter({DType::kF32, {4}}), c = b.parameter({DType::kC64, {3}});
  const Value flags = b.convert(p, DType::kBool);
  const auto got =
      run_program(b,
                  {flags, b.convert(flags, DType::kF8E4M3FN), b.convert(flags, DType::kC64), b.convert(c, DType::kBool),
                   b.convert(c, DType::kI32), b.convert(c, DType::kC128), b.convert(p, DType::kC128)},
                  {tensor<float>(DType::kF32, {0, -0.0f, kNan, 0.5f}), complex_floats({0, 1, 0, 0, -2.5f, 3})});
  ASSERT_EQ(got.size(), 7u);
  EXPECT_EQ(got[0], (Bytes{0, 0, 1, 1}));
  EXPECT_EQ(got[1], (Bytes{0, 0, 0x38, 0x38}));
  EXPECT_EQ(values<float>(got[2]), (std::vector<float>{0, 0, 0, 0, 1, 0, 1, 0}));
  EXPECT_EQ(got[3], (Bytes{1, 0, 1}));
  EXPECT_EQ(values<int32_t>(got[4]), (std::vector<int32_t>{0, 0, -2}));
  EXPECT_EQ(values<double>(got[5]), (std::vector<double>{0, 1, 0, 0, -2.5, 3}));
  EXPECT_EQ(values<double>(got[6])[6], 0.5);
}

}  // namespace
}  // namespace torch_tpu::runtime
