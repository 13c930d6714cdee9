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

// Two constants. The sum of their products with a value's halves is the value moved on by kBits.
template <unsigned kBits>
__m128i step() {
  constexpr std::uint64_t low = power(kBits + 32), high = power(kBits - 32);
  return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}

#define RAILWEAVE_FOLD __attribute__((target("pclmul,sse4.1"))) inline
#define RAILWEAVE_WIDE_FOLD __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.1"))) inline

RAILWEAVE_FOLD __m128i fold(__m128i value, __m128i constants, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(value, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(value, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

RAILWEAVE_FOLD __m128i load_block(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// The bytes to fold, from the front. With `kCopies` they are copied on the way, so that they are read once.
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
  RAILWEAVE_WIDE_FOLD __m256i wide_block() {
    const __m256i block = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + at));
    if constexpr (kCopies) _mm256_storeu_si256(reinterpret_cast<__m256i*>(copy + at), block);
    at += sizeof block;
    return block;
  }
};

template <unsigned kBits>
RAILWEAVE_WIDE_FOLD __m256i wide_step() {
  return _mm256_broadcastsi128_si256(step<kBits>());
}

RAILWEAVE_WIDE_FOLD __m256i fold(__m256i value, __m256i constants, __m256i next) {
  const __m256i low = _mm256_clmulepi64_epi128(value, constants, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(value, constants, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

// Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009: four
// blocks are folded over the next four at a time, in the end all into one. `before` is the block in front of
// the bytes, and is added to the first block. `size` is a multiple of 16 and not 0.
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

// The same with blocks twice as wide: at least 128 bytes. Processors without AVX-512 have the instruction,
// too.
template <bool kCopies>
RAILWEAVE_WIDE_FOLD __m128i fold_wide_blocks(__m128i before, const std::byte* bytes, std::size_t size,
                                             std::byte* copy) {
  Source<kCopies> from{bytes, copy};
  const __m256i by_1024 = wide_step<1024>(), by_256 = wide_step<256>();
  __m256i x = _mm256_xor_si256(from.wide_block(), _mm256_zextsi128_si256(before));
  __m256i x1 = from.wide_block(), x2 = from.wide_block(), x3 = from.wide_block();
  for (size -= 128; size >= 128; size -= 128) {
    x = fold(x, by_1024, from.wide_block());
    x1 = fold(x1, by_1024, from.wide_block());
    x2 = fold(x2, by_1024, from.wide_block());
    x3 = fold(x3, by_1024, from.wide_block());
  }
  x = fold(x, wide_step<768>(), fold(x1, wide_step<512>(), fold(x2, by_256, x3)));
  for (; size >= 32; size -= 32) x = fold(x, by_256, from.wide_block());
  __m128i y = fold(_mm256_castsi256_si128(x), step<128>(), _mm256_extracti128_si256(x, 1));
  for (; size >= 16; size -= 16) y = fold(y, step<128>(), from.block());
  return y;
}

const bool kCanFold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
const bool kCanFoldWide = kCanFold && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");

// The register after the folded bytes, by Barrett reduction.
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
  const bool wide = kCanFoldWide && folded >= 128;
  const __m128i x =
      (wide ? fold_wide_blocks<kCopies> : fold_blocks<kCopies>)(before, bytes.data(), folded, copy);
  const Bytes rest = bytes.subspan(folded);
  if constexpr (kCopies) std::copy(rest.begin(), rest.end(), copy + folded);
  return crc32_update_by_table(reduce(x), rest);
}

// Loads both words one by one. One load of both would wait until their stores are in the cache.
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
