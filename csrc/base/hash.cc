#include "base/hash.h"

#include <array>
#include <bit>
#include <cstring>

namespace torch_tpu {
namespace {

// Odd constants: the fractional parts of the square roots of 2, 3, 5 and 7.
constexpr uint64_t kP0 = 0x6A09E667F3BCC909, kP1 = 0xBB67AE8584CAA73B, kP2 = 0x3C6EF372FE94F82B,
                   kP3 = 0xA54FF53A5F1D36F1;

uint64_t load64(const unsigned char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// For a fixed state this is a bijection of the two words, and for fixed words one of the state: no block can erase what
// the earlier ones left.
void absorb(uint64_t& a, uint64_t& b, uint64_t w0, uint64_t w1) {
  a = std::rotl((a ^ w0) * kP0, 29) + b;
  b = std::rotl((b ^ w1) * kP1, 32) + a;
  a = a * kP2 + kP3;
}

uint64_t avalanche(uint64_t x) {
  x = (x ^ (x >> 32)) * kP1;
  x = (x ^ (x >> 29)) * kP2;
  return x ^ (x >> 32);
}

}  // namespace

Hash128 hash128(const void* data, size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t a = kP3, b = kP2;
  size_t left = bytes;
  for (; left >= 16; left -= 16, p += 16) absorb(a, b, load64(p), load64(p + 8));
  if (left > 0) {
    // Zero padding cannot be mistaken for data: the length is absorbed at the end.
    unsigned char tail[16] = {};
    std::memcpy(tail, p, left);
    absorb(a, b, load64(tail), load64(tail + 8));
  }
  absorb(a, b, bytes, kP0);
  a = avalanche(a + std::rotl(b, 17));
  b = avalanche(b + a);
  return {a ^ std::rotl(b, 41), b};
}

}  // namespace torch_tpu
