// SHA-256 as FIPS 180-4 defines it, with the x86 SHA instructions where the processor has them.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/hash.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace torch_tpu {
namespace {

constexpr size_t kBlock = 64;
using Words = std::array<uint32_t, 8>;

alignas(64) constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big_endian(const unsigned char* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

void compress_plain(Words& state, const unsigned char* data, size_t blocks) {
  for (; blocks > 0; --blocks, data += kBlock) {
    std::array<uint32_t, 64> w;
    for (size_t i = 0; i < 16; ++i) w[i] = load_big_endian(data + 4 * i);
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
      const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const Words added = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += added[i];
  }
}

#if defined(__x86_64__)
bool has_sha_instructions() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  return (ebx >> 29 & 1) != 0 && __builtin_cpu_supports("sse4.1");
}

__attribute__((target("sha,sse4.1"))) void compress_sha(Words& state, const unsigned char* data, size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  // The instructions want the state as {a,b,e,f} and {c,d,g,h}, most significant first.
  const auto pack = [&](uint32_t w3, uint32_t w2, uint32_t w1, uint32_t w0) __attribute__((target("sse4.1"))) {
    return _mm_set_epi32(static_cast<int>(w3), static_cast<int>(w2), static_cast<int>(w1), static_cast<int>(w0));
  };
  __m128i abef = pack(state[0], state[1], state[4], state[5]);
  __m128i cdgh = pack(state[2], state[3], state[6], state[7]);
  for (; blocks > 0; --blocks, data += kBlock) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data + 16 * i)), swap);
    for (size_t group = 0; group < 16; ++group) {
      __m128i& now = w[group % 4];
      const __m128i keys = _mm_load_si128(reinterpret_cast<const __m128i*>(&kRound[4 * group]));
      const __m128i sum = _mm_add_epi32(now, keys);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
      if (group >= 12) continue;
      // The four message words sixteen rounds ahead replace the ones just used.
      const __m128i next = w[(group + 1) % 4], third = w[(group + 2) % 4], last = w[(group + 3) % 4];
      const __m128i seventh = _mm_alignr_epi8(last, third, 4);
      now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, next), seventh), last);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  alignas(16) std::array<uint32_t, 4> ab, cd;
  _mm_store_si128(reinterpret_cast<__m128i*>(ab.data()), abef);
  _mm_store_si128(reinterpret_cast<__m128i*>(cd.data()), cdgh);
  state = {ab[3], ab[2], cd[3], cd[2], ab[1], ab[0], cd[1], cd[0]};
}
#endif

void compress(Words& state, const unsigned char* data, size_t blocks) {
#if defined(__x86_64__)
  static const bool fast = has_sha_instructions();
  if (fast) return compress_sha(state, data, blocks);
#endif
  compress_plain(state, data, blocks);
}

class Sha256 {
 public:
  void add(const unsigned char* data, size_t bytes) {
    total_ += bytes;
    if (held_ > 0) {
      const size_t take = std::min(bytes, kBlock - held_);
      std::memcpy(block_.data() + held_, data, take);
      held_ += take, data += take, bytes -= take;
      if (held_ < kBlock) return;
      compress(state_, block_.data(), 1);
      held_ = 0;
    }
    compress(state_, data, bytes / kBlock);
    held_ = bytes % kBlock;
    if (held_ > 0) std::memcpy(block_.data(), data + bytes - held_, held_);
  }

  std::string hex() {
    const uint64_t bits = total_ * 8;
    std::array<unsigned char, 2 * kBlock> tail = {0x80};
    const size_t padding = (held_ < 56 ? 56 : 120) - held_;
    for (size_t i = 0; i < 8; ++i) tail[padding + i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
    add(tail.data(), padding + 8);
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (uint32_t word : state_)
      for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[word >> shift & 15];
    return text;
  }

 private:
  Words state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, kBlock> block_{};
  size_t held_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

std::string sha256_hex(std::string_view data) {
  Sha256 hash;
  hash.add(reinterpret_cast<const unsigned char*>(data.data()), data.size());
  return hash.hex();
}

std::string sha256_file_hex(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  Sha256 hash;
  std::vector<unsigned char> chunk(1 << 20);
  ssize_t got;
  while ((got = ::read(file, chunk.data(), chunk.size())) > 0) hash.add(chunk.data(), static_cast<size_t>(got));
  ::close(file);
  return got == 0 ? hash.hex() : "";
}

}  // namespace torch_tpu
