#include "base/dtype.h"

#include <gtest/gtest.h>

#include <set>

namespace torch_tpu {
namespace {

constexpr int kCount = static_cast<int>(DType::kF8E8M0FNU) + 1;

TEST(DTypeFacts, EveryTypeHasOneKindAndAName) {
  std::set<std::string_view> hlo, torch;
  for (int i = 1; i < kCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(is_bool(dtype) + is_integer(dtype) + is_float(dtype) + is_complex(dtype), 1) << i;
    EXPECT_TRUE(hlo.insert(hlo_name(dtype)).second) << i;
    EXPECT_TRUE(torch.insert(torch_name(dtype)).second) << i;
    EXPECT_GT(byte_size(dtype), 0) << i;
  }
  EXPECT_EQ(byte_size(DType::kInvalid), 0);
}

TEST(DTypeFacts, Table) {
  EXPECT_EQ(byte_size(DType::kBool), 1);
  EXPECT_EQ(byte_size(DType::kBF16), 2);
  EXPECT_EQ(byte_size(DType::kC128), 16);
  EXPECT_EQ(hlo_name(DType::kU8), "ui8");
  EXPECT_EQ(hlo_name(DType::kC64), "complex<f32>");
  EXPECT_EQ(torch_name(DType::kF8E4M3FN), "float8_e4m3fn");
  EXPECT_TRUE(is_unsigned_integer(DType::kU8));
  EXPECT_FALSE(is_integer(DType::kBool));
  EXPECT_TRUE(is_float(DType::kF8E5M2));
  EXPECT_EQ(real_of(DType::kC128), DType::kF64);
  EXPECT_EQ(real_of(DType::kI32), DType::kI32);
  EXPECT_EQ(complex_of(DType::kF64), DType::kC128);
  EXPECT_EQ(complex_of(DType::kI64), DType::kC64);
  EXPECT_EQ(compute_dtype(DType::kBF16), DType::kF32);
  EXPECT_EQ(compute_dtype(DType::kF64), DType::kF64);
  EXPECT_EQ(compute_dtype(DType::kI16), DType::kI16);
}

}  // namespace
}  // namespace torch_tpu
