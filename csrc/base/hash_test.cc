#include "base/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <fstream>
#include <set>

namespace torch_tpu {
namespace {

// Vectors of FIPS 180-4's examples.
TEST(Sha256, KnownVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, FileEqualsMemory) {
  const std::string path = testing::TempDir() + "/torch_tpu_hash_test";
  const std::string text((3 << 20) + 77, 'q');
  std::ofstream(path) << text;
  EXPECT_EQ(sha256_file_hex(path), sha256_hex(text));
  std::remove(path.c_str());
  EXPECT_EQ(sha256_file_hex(path), "");
}

TEST(Hash128, EveryBitOfEveryLengthCounts) {
  std::set<std::pair<uint64_t, uint64_t>> seen;
  size_t made = 0;
  for (size_t length = 0; length <= 70; ++length) {
    std::string data(length, '\0');
    const auto add = [&] {
      const Hash128 hash = hash128(data.data(), data.size());
      seen.emplace(hash.low, hash.high);
      ++made;
    };
    add();
    for (size_t bit = 0; bit < 8 * length; ++bit) {
      data[bit / 8] ^= static_cast<char>(1 << bit % 8);
      add();
      data[bit / 8] ^= static_cast<char>(1 << bit % 8);
    }
  }
  EXPECT_EQ(seen.size(), made);
}

TEST(Hash128, OneBitChangesHalfTheHash) {
  std::string data(48, 'x');
  const Hash128 base = hash128(data.data(), data.size());
  for (size_t bit = 0; bit < 8 * data.size(); ++bit) {
    data[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const Hash128 other = hash128(data.data(), data.size());
    data[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const int changed = std::popcount(base.low ^ other.low) + std::popcount(base.high ^ other.high);
    EXPECT_GT(changed, 30) << bit;
    EXPECT_LT(changed, 98) << bit;
  }
}

}  // namespace
}  // namespace torch_tpu
