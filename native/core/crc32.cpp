// SPDX-License-Identifier: Apache-2.0
#include "core/crc32.hpp"

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

// One step of folding: `value` moved on by the distance that `constants` stand for, then `next` added.
__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i value, __m128i constants, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(value, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(value, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

__attribute__((target("pclmul,sse4.1"))) inline __m128i load_block(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009:
// four lanes of 128 bits folded over 512, then over 128, then Barrett reduction; constants for the reflected
// polynomial from its table. `size` is a multiple of 16 and not 0.
__attribute__((target("pclmul,sse4.1"))) std::uint32_t update_by_folding(std::uint32_t state,
                                                                         const std::byte* at,
                                                                         std::size_t size) {
  const __m128i by_512 = _mm_set_epi64x(0x01'c6e4'1596, 0x01'5444'2bd4);
  const __m128i by_128 = _mm_set_epi64x(0x00'ccaa'009e, 0x01'7519'97d0);
  const __m128i by_64 = _mm_set_epi64x(0, 0x01'63cd'6124);
  const __m128i barrett = _mm_set_epi64x(0x01'f701'1641, 0x01'db71'0641);
  const __m128i mask = _mm_setr_epi32(~0, 0, ~0, 0);

  __m128i x = _mm_xor_si128(load_block(at), _mm_cvtsi32_si128(static_cast<int>(state)));
  at += 16, size -= 16;
  if (size >= 48) {
    __m128i x1 = load_block(at), x2 = load_block(at + 16), x3 = load_block(at + 32);
    for (at += 48, size -= 48; size >= 64; at += 64, size -= 64) {
      x = fold(x, by_512, load_block(at));
      x1 = fold(x1, by_512, load_block(at + 16));
      x2 = fold(x2, by_512, load_block(at + 32));
      x3 = fold(x3, by_512, load_block(at + 48));
    }
    x = fold(fold(fold(x, by_128, x1), by_128, x2), by_128, x3);
  }
  for (; size >= 16; at += 16, size -= 16) x = fold(x, by_128, load_block(at));

  x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by_128, 0x10));
  x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(_mm_and_si128(x, mask), by_64, 0x00));
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, mask), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, mask), barrett, 0x00);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(x, quotient), 1));
}

const bool kCanFold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
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
  if (kCanFold && bytes.size() >= kFoldMin) {
    const std::size_t folded = bytes.size() & ~std::size_t{15};
    state = update_by_folding(state, bytes.data(), folded);
    bytes = bytes.subspan(folded);
  }
#endif
  return crc32_update_by_table(state, bytes);
}

}  // namespace railweave
