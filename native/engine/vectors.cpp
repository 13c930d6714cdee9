// SPDX-License-Identifier: Apache-2.0
#include "engine/vectors.hpp"

#include <algorithm>
#include <limits>

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
#define RAILWEAVE_LANES(name, expression)                                                              \
  RAILWEAVE_SIMD static void name(std::uint32_t* to, const std::uint32_t* pa, const std::uint32_t* pb, \
                                  std::size_t n) {                                                     \
    _Pragma("GCC ivdep") for (std::size_t i = 0; i < n; ++i) {                                         \
      const std::uint32_t a = pa[i], b = pb[i];                                                        \
      to[i] = static_cast<std::uint32_t>(expression);                                                  \
    }                                                                                                  \
  }
RAILWEAVE_LANES(add, a + b)
RAILWEAVE_LANES(sub, a - b)
RAILWEAVE_LANES(mul, a* b)
RAILWEAVE_LANES(bit_and, a& b)
RAILWEAVE_LANES(bit_or, a | b)
RAILWEAVE_LANES(bit_xor, a ^ b)
RAILWEAVE_LANES(equal, a == b ? ~0u : 0u)
RAILWEAVE_LANES(less_unsigned, a < b ? ~0u : 0u)
RAILWEAVE_LANES(less_signed, as_signed(a) < as_signed(b) ? ~0u : 0u)
RAILWEAVE_LANES(min_unsigned, a < b ? a : b)
RAILWEAVE_LANES(max_unsigned, a < b ? b : a)
RAILWEAVE_LANES(min_signed, as_signed(a) < as_signed(b) ? a : b)
RAILWEAVE_LANES(max_signed, as_signed(a) < as_signed(b) ? b : a)
RAILWEAVE_LANES(add_sat_unsigned, a + b < a ? ~0u : a + b)
RAILWEAVE_LANES(sub_sat_unsigned, a < b ? 0u : a - b)
RAILWEAVE_LANES(add_sat_signed, add_signed_saturating(a, b))
RAILWEAVE_LANES(sub_sat_signed, sub_signed_saturating(a, b))
#undef RAILWEAVE_LANES

void apply(Binary op, std::uint32_t* to, const std::uint32_t* a, const std::uint32_t* b, std::size_t n) {
  using Function = void (*)(std::uint32_t*, const std::uint32_t*, const std::uint32_t*, std::size_t);
  static constexpr Function kFunctions[] = {
      [](auto... x) { add(x...); },
      [](auto... x) { sub(x...); },
      [](auto... x) { mul(x...); },
      [](auto... x) { bit_and(x...); },
      [](auto... x) { bit_or(x...); },
      [](auto... x) { bit_xor(x...); },
      [](auto... x) { equal(x...); },
      [](auto... x) { less_unsigned(x...); },
      [](auto... x) { less_signed(x...); },
      [](auto... x) { min_unsigned(x...); },
      [](auto... x) { max_unsigned(x...); },
      [](auto... x) { min_signed(x...); },
      [](auto... x) { max_signed(x...); },
      [](auto... x) { add_sat_unsigned(x...); },
      [](auto... x) { sub_sat_unsigned(x...); },
      [](auto... x) { add_sat_signed(x...); },
      [](auto... x) { sub_sat_signed(x...); },
  };
  kFunctions[static_cast<int>(op)](to, a, b, n);
}

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
