// SPDX-License-Identifier: Apache-2.0
#include "engine/vectors.hpp"

#include "core/simd.hpp"

namespace railweave::engine::vectors {
namespace {

std::int32_t as_signed(std::uint32_t x) { return static_cast<std::int32_t>(x); }

std::uint32_t add_signed_saturating(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t sum = a + b;
  const std::uint32_t limit = (a >> 31) + 0x7fffffffu;
  return as_signed((a ^ sum) & (b ^ sum)) < 0 ? limit : sum;
}

std::uint32_t sub_signed_saturating(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t difference = a - b;
  const std::uint32_t limit = (a >> 31) + 0x7fffffffu;
  return as_signed((a ^ b) & (a ^ difference)) < 0 ? limit : difference;
}

}  // namespace

// One function per operation, each a plain loop for the vectoriser. Operands may be the same vector, which
// `#pragma GCC ivdep` allows: word i depends on word i alone.
#define RAILWEAVE_WORDS(name, expression)                                                       \
  RAILWEAVE_SIMD void name(std::uint32_t* to, const std::uint32_t* pa, const std::uint32_t* pb, \
                           std::size_t n) {                                                     \
    _Pragma("GCC ivdep") for (std::size_t i = 0; i < n; ++i) {                                  \
      const std::uint32_t a = pa[i], b = pb[i];                                                 \
      to[i] = static_cast<std::uint32_t>(expression);                                           \
    }                                                                                           \
  }
RAILWEAVE_WORDS(add, a + b)
RAILWEAVE_WORDS(sub, a - b)
RAILWEAVE_WORDS(mul, a* b)
RAILWEAVE_WORDS(bit_and, a& b)
RAILWEAVE_WORDS(bit_or, a | b)
RAILWEAVE_WORDS(bit_xor, a ^ b)
RAILWEAVE_WORDS(equal, a == b ? ~0u : 0u)
RAILWEAVE_WORDS(less_unsigned, a < b ? ~0u : 0u)
RAILWEAVE_WORDS(less_signed, as_signed(a) < as_signed(b) ? ~0u : 0u)
RAILWEAVE_WORDS(min_unsigned, a < b ? a : b)
RAILWEAVE_WORDS(max_unsigned, a < b ? b : a)
RAILWEAVE_WORDS(min_signed, as_signed(a) < as_signed(b) ? a : b)
RAILWEAVE_WORDS(max_signed, as_signed(a) < as_signed(b) ? b : a)
RAILWEAVE_WORDS(add_sat_unsigned, a + b < a ? ~0u : a + b)
RAILWEAVE_WORDS(sub_sat_unsigned, a < b ? 0u : a - b)
RAILWEAVE_WORDS(add_sat_signed, add_signed_saturating(a, b))
RAILWEAVE_WORDS(sub_sat_signed, sub_signed_saturating(a, b))
#undef RAILWEAVE_WORDS

RAILWEAVE_SIMD void load_be(std::uint32_t* to, const std::byte* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t word;
    __builtin_memcpy(&word, from + 4 * i, 4);
    to[i] = __builtin_bswap32(word);
  }
}

RAILWEAVE_SIMD void store_be(std::byte* to, const std::uint32_t* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t word = __builtin_bswap32(from[i]);
    __builtin_memcpy(to + 4 * i, &word, 4);
  }
}

RAILWEAVE_SIMD void broadcast(std::uint32_t* to, std::uint32_t value, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] = value;
}

RAILWEAVE_SIMD void select(std::uint32_t* to, const std::uint32_t* condition, const std::uint32_t* a,
                           std::size_t n) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i) to[i] = (a[i] & condition[i]) | (to[i] & ~condition[i]);
}

RAILWEAVE_SIMD void invert(std::uint32_t* to, const std::uint32_t* a, std::size_t n) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i) to[i] = ~a[i];
}

RAILWEAVE_SIMD void shift_left(std::uint32_t* to, const std::uint32_t* a, unsigned count, std::size_t n) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i) to[i] = a[i] << count;
}

RAILWEAVE_SIMD void shift_right(std::uint32_t* to, const std::uint32_t* a, unsigned count, std::size_t n) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i) to[i] = a[i] >> count;
}

RAILWEAVE_SIMD void shift_right_signed(std::uint32_t* to, const std::uint32_t* a, unsigned count,
                                       std::size_t n) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<std::uint32_t>(as_signed(a[i]) >> count);
}

}  // namespace railweave::engine::vectors
