#include <gtest/gtest.h>

#include "pjrt/client.h"

namespace torch_tpu::pjrt {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (unsigned char c : bytes) {
    static constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[c >> 4];
    text += kDigits[c & 15];
  }
  return text;
}

const std::string kMinusOne = "08ffffffffffffffffff01";  // device_ordinal: -1

TEST(CompileOptions, PortableWithoutOverrides) {
  EXPECT_EQ(hex(CompileOptions{}.encode()), "1a0f" + kMinusOne + "20012801" + "2001");
}

TEST(CompileOptions, BoundToOneDevice) {
  const CompileOptions options{.portable = false, .device = 300};
  // Assignment {1 replica, 1 computation, devices {[300]}}.
  EXPECT_EQ(hex(options.encode()),
            "1a1b" + kMinusOne + "20012801" + "4a0a" + "08011001" + "1a04" + "0a02ac02" + "2000");
}

TEST(CompileOptions, EveryKindOfOverrideIsWrittenEvenWhenZero) {
  CompileOptions options;
  const std::string plain = options.encode();
  options.overrides = {{"a", std::string("x")}, {"b", false}, {"c", int64_t{0}}, {"d", 1.5}};
  EXPECT_EQ(hex(options.encode().substr(plain.size())),
            std::string("3a08") + "0a0161" + "1203" + "0a0178" +  //
                "3a07" + "0a0162" + "1202" + "1000" +             //
                "3a07" + "0a0163" + "1202" + "1800" +             //
                "3a0e" + "0a0164" + "1209" + "21000000000000f83f");
}

TEST(CompileOptions, TheSameOptionsGiveTheSameBytes) {
  CompileOptions first, second;
  first.overrides["z"] = true;
  first.overrides["a"] = false;
  second.overrides["a"] = false;
  second.overrides["z"] = true;
  EXPECT_EQ(first.encode(), second.encode());
}

}  // namespace
}  // namespace torch_tpu::pjrt
