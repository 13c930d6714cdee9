// SPDX-License-Identifier: Apache-2.0
#include "engine/vectors.hpp"

#include "core/bytes.hpp"
#include "core/simd.hpp"

namespace railweave::engine::vectors {
namespace {

/// Calls a loop with elements of this size in bytes.
template <typename Loop>
[[gnu::always_inline]] inline void with_element(unsigned bytes, const Loop& loop) {
  if (bytes == 1) loop(std::uint8_t{});
  if (bytes == 2) loop(std::uint16_t{});
  if (bytes == 4) loop(std::uint32_t{});
  if (bytes == 8) loop(std::uint64_t{});
}

}  // namespace

// One function per operation, each a plain loop for the vectoriser. Operands may be the same vector, which
// `#pragma GCC ivdep` allows: word i depends on word i alone.
#define EACH(name, expression, Word, ...)                                          \
  RAILWEAVE_SIMD void name(Word* to, __VA_ARGS__, std::size_t n) {                 \
    _Pragma("GCC ivdep") for (std::size_t i = 0; i < n; ++i) to[i] = (expression); \
  }
#define LOAD(name, Word)                                                                          \
  RAILWEAVE_SIMD void name(Word* to, const std::byte* from, unsigned bytes, std::size_t n) {      \
    with_element(bytes, [&](auto element) __attribute__((always_inline)) {                        \
      for (std::size_t i = 0; i < n; ++i) {                                                       \
        to[i] = static_cast<Word>(railweave::name<decltype(element)>(from + i * sizeof element)); \
      }                                                                                           \
    });                                                                                           \
  }
#define STORE(name, Word)                                                                    \
  RAILWEAVE_SIMD void name(std::byte* to, const Word* from, unsigned bytes, std::size_t n) { \
    with_element(bytes, [&](auto element) __attribute__((always_inline)) {                   \
      using Element = decltype(element);                                                     \
      for (std::size_t i = 0; i < n; ++i) {                                                  \
        railweave::name<Element>(to + i * sizeof element, static_cast<Element>(from[i]));    \
      }                                                                                      \
    });                                                                                      \
  }
#define FUNCTIONS(Word)                                                                             \
  LOAD(load_be, Word)                                                                               \
  LOAD(load_le, Word)                                                                               \
  STORE(store_be, Word)                                                                             \
  STORE(store_le, Word)                                                                             \
  EACH(broadcast, value, Word, Word value)                                                          \
  EACH(select, word::select(to[i], condition[i], a[i]), Word, const Word* condition, const Word* a) \
  EACH(invert, ~a[i], Word, const Word* a)                                                          \
  EACH(shift_left, a[i] << count, Word, const Word* a, unsigned count)                              \
  EACH(shift_right, a[i] >> count, Word, const Word* a, unsigned count)                             \
  EACH(shift_right_signed, word::shift_right_signed(a[i], count), Word, const Word* a, unsigned count)
FUNCTIONS(std::uint32_t)
FUNCTIONS(std::uint64_t)

#define X(op, name)                                                                                 \
  EACH(name, word::name(a[i], b[i]), std::uint32_t, const std::uint32_t* a, const std::uint32_t* b) \
  EACH(name, word::name(a[i], b[i]), std::uint64_t, const std::uint64_t* a, const std::uint64_t* b)
RAILWEAVE_VECTOR_OPS(X)
#undef X

#undef FUNCTIONS
#undef STORE
#undef LOAD
#undef EACH

}  // namespace railweave::engine::vectors
