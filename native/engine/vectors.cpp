// SPDX-License-Identifier: Apache-2.0
#include "engine/vectors.hpp"

#include "core/simd.hpp"

namespace railweave::engine::vectors {

// One function per operation, each a plain loop for the vectoriser. Operands may be the same vector, which
// `#pragma GCC ivdep` allows: word i depends on word i alone.
#define X(op, name)                                                                           \
  RAILWEAVE_SIMD void name(std::uint32_t* to, const std::uint32_t* a, const std::uint32_t* b, \
                           std::size_t n) {                                                   \
    _Pragma("GCC ivdep") for (std::size_t i = 0; i < n; ++i) to[i] = word::name(a[i], b[i]);  \
  }
RAILWEAVE_VECTOR_OPS(X)
#undef X

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
  for (std::size_t i = 0; i < n; ++i) to[i] = word::select(to[i], condition[i], a[i]);
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
  for (std::size_t i = 0; i < n; ++i) to[i] = word::shift_right_signed(a[i], count);
}

}  // namespace railweave::engine::vectors
