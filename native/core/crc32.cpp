// SPDX-License-Identifier: Apache-2.0
#include "core/crc32.hpp"

#include <algorithm>
#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace railweave {
namespace {

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Table make_table() {
  Table table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0xedb8'8320u : 0u);
    table[0][byte] = crc;
  }
  for (std::size_t slice = 1; slice < table.size(); ++slice) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = table[slice - 1][byte];
      table[slice][byte] = (before >> 8) ^ table[0][before & 0xff];
    }
  }
  return table;
}

constexpr Table kTable = make_table();

#if defined(__x86_64__)
constexpr std::size_t kFoldMin = 32;  // below, the table is as fast

/// x^exponent modulo the polynomial, reflected: the form in which a carry-less product needs it.
constexpr std::uint64_t power(unsigned exponent) {
  std::uint32_t remainder = 0x8000'0000;  // x^0
  for (; exponent > 0; --exponent) remainder = (remainder >> 1) ^ ((remainder & 1) ? 0xedb8'8320u : 0u);
  return std::uint64_t{remainder} << 1;
}

// What moves a value on by so many bits: its halves times these, added.
template <unsigned kBits>
__m128i step() {
  constexpr std::uint64_t low = power(kBits + 32), high = power(kBits - 32);
  return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}

#define RAILWEAVE_FOLD __attribute__((target("pclmul,sse4.1"))) inline
#define RAILWEAVE_WIDE_FOLD __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1"))) inline

RAILWEAVE_FOLD __m128i fold(__m128i value, __m128i constants, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(value, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(value, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

RAILWEAVE_FOLD __m128i load_block(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// The bytes that are folded, from the front. With `kCopies` they are copied on the way, and so read once.
template <bool kCopies>
struct Source {
  const std::byte* const bytes;
  std::byte* const copy;
  std::size_t at = 0;

  RAILWEAVE_FOLD __m128i block() {
    const __m128i block = load_block(bytes + at);
    if constexpr (kCopies) _mm_storeu_si128(reinterpret_cast<__m128i*>(copy + at), block);
    at += sizeof block;
    return block;
  }
  RAILWEAVE_WIDE_FOLD __m512i wide_block() {
    const __m512i block = _mm512_loadu_si512(bytes + at);
    if constexpr (kCopies) _mm512_storeu_si512(copy + at, block);
    at += sizeof block;
    return block;
  }
};

// For four blocks, from the front; for kNoStep nothing is left of one.
constexpr unsigned kNoStep = 0;
template <unsigned kFirst, unsigned kSecond = kFirst, unsigned kThird = kFirst, unsigned kFourth = kFirst>
RAILWEAVE_WIDE_FOLD __m512i wide_step() {
  constexpr auto low = [](unsigned bits) {
    return bits == kNoStep ? 0 : static_cast<long long>(power(bits + 32));
  };
  constexpr auto high = [](unsigned bits) {
    return bits == kNoStep ? 0 : static_cast<long long>(power(bits - 32));
  };
  constexpr long long words[] = {low(kFirst), high(kFirst), low(kSecond), high(kSecond),
                                 low(kThird), high(kThird), low(kFourth), high(kFourth)};
  return _mm512_set_epi64(words[7], words[6], words[5], words[4], words[3], words[2], words[1], words[0]);
}

RAILWEAVE_WIDE_FOLD __m512i fold(__m512i value, __m512i constants, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(value, constants, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(value, constants, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // xor of three
}

// All four blocks into one, each over as many as follow it. Without a way through memory: a load of a part
// of what was stored would wait for all stores before.
RAILWEAVE_WIDE_FOLD __m128i fold_together(__m512i x) {
  const __m512i last = _mm512_maskz_mov_epi64(0xc0, x);
  x = fold(x, wide_step<384, 256, 128, kNoStep>(), last);
  // Masked, with masks of ones: gcc 12 takes the plain ones for a use of something uninitialized.
  const __m256i y = _mm256_xor_si256(_mm512_maskz_extracti64x4_epi64(0xff, x, 0),
                                     _mm512_maskz_extracti64x4_epi64(0xff, x, 1));
  return _mm_xor_si128(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
}

// Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009: four
// blocks are folded over the next four at a time, in the end all into one. `before` is what stands before the
// bytes, to be added to the first of them; `size` is a multiple of 16 and not 0.
template <bool kCopies>
RAILWEAVE_FOLD __m128i fold_blocks(__m128i before, const std::byte* bytes, std::size_t size,
                                   std::byte* copy) {
  Source<kCopies> from{bytes, copy};
  __m128i x = _mm_xor_si128(from.block(), before);
  size -= 16;
  if (size >= 48) {
    __m128i x1 = from.block(), x2 = from.block(), x3 = from.block();
    for (size -= 48; size >= 64; size -= 64) {
      x = fold(x, step<512>(), from.block());
      x1 = fold(x1, step<512>(), from.block());
      x2 = fold(x2, step<512>(), from.block());
      x3 = fold(x3, step<512>(), from.block());
    }
    x = fold(x, step<384>(), fold(x1, step<256>(), fold(x2, step<128>(), x3)));
  }
  for (; size >= 16; size -= 16) x = fold(x, step<128>(), from.block());
  return x;
}

// The same with blocks four times as wide: at least 256 bytes.
template <bool kCopies>
RAILWEAVE_WIDE_FOLD __m128i fold_wide_blocks(__m128i before, const std::byte* bytes, std::size_t size,
                                             std::byte* copy) {
  Source<kCopies> from{bytes, copy};
  const __m512i by_2048 = wide_step<2048>(), by_512 = wide_step<512>();
  __m512i x = _mm512_xor_si512(from.wide_block(), _mm512_zextsi128_si512(before));
  __m512i x1 = from.wide_block(), x2 = from.wide_block(), x3 = from.wide_block();
  for (size -= 256; size >= 256; size -= 256) {
    x = fold(x, by_2048, from.wide_block());
    x1 = fold(x1, by_2048, from.wide_block());
    x2 = fold(x2, by_2048, from.wide_block());
    x3 = fold(x3, by_2048, from.wide_block());
  }
  x = fold(x, wide_step<1536>(), fold(x1, wide_step<1024>(), fold(x2, by_512, x3)));
  for (; size >= 64; size -= 64) x = fold(x, by_512, from.wide_block());
  __m128i y = fold_together(x);
  for (; size >= 16; size -= 16) y = fold(y, step<128>(), from.block());
  return y;
}

const bool kCanFold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
const bool kCanFoldWide =
    kCanFold && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");

// The register behind what was folded: Barrett reduction.
RAILWEAVE_FOLD std::uint32_t reduce(__m128i x) {
  const __m128i by_64 = _mm_cvtsi64_si128(power(64));
  const __m128i barrett = _mm_set_epi64x(0x01'f701'1641, 0x01'db71'0641);
  const __m128i mask = _mm_setr_epi32(~0, 0, ~0, 0);
  x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, step<128>(), 0x10));
  x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(_mm_and_si128(x, mask), by_64, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, mask), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, mask), barrett, 0x00);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(x, quotient), 1));
}

template <bool kCopies>
RAILWEAVE_FOLD std::uint32_t update_by_folding(__m128i before, Bytes bytes, std::byte* copy) {
  const std::size_t folded = bytes.size() & ~std::size_t{15};
  const bool wide = kCanFoldWide && folded >= 256;
  const __m128i x =
      (wide ? fold_wide_blocks<kCopies> : fold_blocks<kCopies>)(before, bytes.data(), folded, copy);
  const Bytes rest = bytes.subspan(folded);
  if constexpr (kCopies) std::copy(rest.begin(), rest.end(), copy + folded);
  return crc32_update_by_table(reduce(x), rest);
}

// Both words at once would have to wait until their stores are in the cache: they are loaded one by one.
RAILWEAVE_FOLD __m128i load_words(const std::uint64_t* words) {
  std::uint64_t low = words[0], high = words[1];
  asm("" : "+r"(low), "+r"(high));
  return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}

template <bool kCopies>
RAILWEAVE_FOLD std::uint32_t behind_by_folding(const CrcHead& head, Bytes bytes, std::byte* copy) {
  const __m128i start = _mm_cvtsi32_si128(static_cast<int>(kCrcStart)), none = _mm_setzero_si128();
  const __m128i first = _mm_xor_si128(load_words(&head[0]), start);
  const __m128i before =
      fold(first, step<384>(),
           fold(load_words(&head[2]), step<256>(), fold(load_words(&head[4]), step<128>(), none)));
  return update_by_folding<kCopies>(before, bytes, copy);
}
#endif

}  // namespace

std::uint32_t crc32_update_by_table(std::uint32_t state, Bytes bytes) {
  const std::byte* at = bytes.data();
  std::size_t size = bytes.size();
  for (; size >= 8; at += 8, size -= 8) {
    const std::uint64_t word = load_le<std::uint64_t>(at) ^ state;
    state = 0;
    for (std::size_t i = 0; i < 8; ++i) state ^= kTable[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (; size > 0; ++at, --size) {
    state = (state >> 8) ^ kTable[0][(state ^ std::to_integer<std::uint32_t>(*at)) & 0xff];
  }
  return state;
}

std::uint32_t crc32_update(std::uint32_t state, Bytes bytes) {
#if defined(__x86_64__)
  if (kCanFold && bytes.size() >= kFoldMin)
    return update_by_folding<false>(_mm_cvtsi32_si128(static_cast<int>(state)), bytes, nullptr);
#endif
  return crc32_update_by_table(state, bytes);
}

std::uint32_t crc32_behind(const CrcHead& head, Bytes bytes) {
#if defined(__x86_64__)
  if (kCanFold && bytes.size() >= kFoldMin) return behind_by_folding<false>(head, bytes, nullptr);
#endif
  return crc32_update_by_table(crc32_update_by_table(kCrcStart, std::as_bytes(std::span(head))), bytes);
}

std::uint32_t crc32_copy_behind(const CrcHead& head, Bytes bytes, std::byte* to) {
#if defined(__x86_64__)
  if (kCanFold && bytes.size() >= kFoldMin) return behind_by_folding<true>(head, bytes, to);
#endif
  std::copy(bytes.begin(), bytes.end(), to);
  return crc32_behind(head, bytes);
}

}  // namespace railweave
