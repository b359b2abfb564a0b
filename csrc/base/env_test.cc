#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string_view>

namespace torch_tpu {
namespace {

class Env : public testing::Test {
 protected:
  void set(const char* name, const char* value) {
    names_.insert(name);
    setenv(name, value, 1);
  }
  void TearDown() override {
    for (const char* name : names_) unsetenv(name);
  }
  std::set<const char*> names_;
};

TEST_F(Env, DefaultsParse) {
  for (const env::Variable& variable : env::variables()) {
    const std::string_view type = variable.type;
    unsetenv(variable.name);
    if (type == "flag") {
      EXPECT_TRUE(env::flag(variable.name).ok()) << variable.name;
    }
    if (type == "int") {
      EXPECT_TRUE(env::integer(variable.name, INT64_MIN, INT64_MAX).ok()) << variable.name;
    }
    if (type == "bytes") {
      EXPECT_TRUE(env::bytes(variable.name).ok()) << variable.name;
    }
    if (type.starts_with("one of ")) {
      EXPECT_TRUE(env::one_of(variable.name).ok()) << variable.name;
    }
    EXPECT_NE(std::string_view(variable.doc), "") << variable.name;
  }
}

TEST_F(Env, NamesAreUnique) {
  std::set<std::string> names;
  for (const env::Variable& variable : env::variables())
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
}

TEST_F(Env, Flags) {
  for (const char* yes : {"1", "true", "Yes", "ON"}) {
    set("TORCH_TPU_CACHE", yes);
    EXPECT_TRUE(env::flag("TORCH_TPU_CACHE").value()) << yes;
  }
  for (const char* no : {"0", "false", "No", "off"}) {
    set("TORCH_TPU_CACHE", no);
    EXPECT_FALSE(env::flag("TORCH_TPU_CACHE").value()) << no;
  }
  set("TORCH_TPU_CACHE", "maybe");
  EXPECT_EQ(env::flag("TORCH_TPU_CACHE").error().message, "TORCH_TPU_CACHE: expected 0 or 1, got <maybe>");
  EXPECT_EQ(env::flag("TORCH_TPU_CACHE").error().code, ErrorCode::kValue);
}

TEST_F(Env, EmptyMeansDefault) {
  set("TORCH_TPU_CACHE", "");
  EXPECT_TRUE(env::flag("TORCH_TPU_CACHE").value());
}

TEST_F(Env, Integers) {
  set("TORCH_TPU_NUM_DEVICES", " 4 ");
  EXPECT_EQ(env::integer("TORCH_TPU_NUM_DEVICES", 1, INT64_MAX).value(), 4);
  for (const char* wrong : {"many", "0", "-1", "3.5", "4x", "99999999999999999999"}) {
    set("TORCH_TPU_NUM_DEVICES", wrong);
    EXPECT_EQ(env::integer("TORCH_TPU_NUM_DEVICES", 1, INT64_MAX).error().message,
              "TORCH_TPU_NUM_DEVICES: expected an integer of at least 1, got <" + std::string(wrong) + ">");
  }
  EXPECT_EQ(env::integer("TORCH_TPU_NUM_DEVICES", 1, 8).error().message,
            "TORCH_TPU_NUM_DEVICES: expected an integer from 1 to 8, got <99999999999999999999>");
}

TEST_F(Env, Bytes) {
  const auto parse = [&](const char* text) {
    set("TORCH_TPU_MEMORY_LIMIT", text);
    return env::bytes("TORCH_TPU_MEMORY_LIMIT");
  };
  EXPECT_EQ(parse("").value(), -1);
  EXPECT_EQ(parse("0").value(), 0);
  EXPECT_EQ(parse("12345").value(), 12345);
  EXPECT_EQ(parse("16GiB").value(), int64_t{16} << 30);
  EXPECT_EQ(parse("16 gib").value(), int64_t{16} << 30);
  EXPECT_EQ(parse("512MB").value(), 512'000'000);
  EXPECT_EQ(parse("1.5k").value(), 1536);
  EXPECT_EQ(parse("1e9").value(), 1'000'000'000);
  EXPECT_EQ(parse("2TiB").value(), int64_t{2} << 40);
  for (const char* wrong : {"lots", "-1", "16XB", "GiB", "inf", "nan", "0x10", "1e300", "1 2"})
    EXPECT_FALSE(parse(wrong).ok()) << wrong;
  EXPECT_EQ(parse("lots").error().message,
            "TORCH_TPU_MEMORY_LIMIT: expected a number of bytes such as 16GiB or 512MB, got <lots>");
}

TEST_F(Env, Choices) {
  set("TORCH_TPU_FALLBACK", "Error");
  EXPECT_EQ(env::one_of("TORCH_TPU_FALLBACK").value(), "error");
  set("TORCH_TPU_FALLBACK", "err");
  EXPECT_EQ(env::one_of("TORCH_TPU_FALLBACK").error().message,
            "TORCH_TPU_FALLBACK: expected one of warn quiet error, got <err>");
}

}  // namespace
}  // namespace torch_tpu
