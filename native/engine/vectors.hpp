// SPDX-License-Identifier: Apache-2.0
// Vectors of 32- or 64-bit words. Fused runs of primitives over header fields and registers become these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace railweave::engine::vectors {

/// The length of a vector, as instructions and slices give it: the number of its words, and this bit if a
/// word has 64 bits.
inline constexpr std::uint32_t kLongWords = 1u << 31;

constexpr bool has_long_words(std::uint32_t length) { return (length & kLongWords) != 0; }
constexpr std::uint32_t count(std::uint32_t length) { return length & ~kLongWords; }

/// Instructions with two operands, and the functions of words and of vectors that do them.
// clang-format off
#define RAILWEAVE_VECTOR_OPS(X) \
  X(V_ADD, add) X(V_SUB, sub) X(V_MUL, mul) X(V_AND, bit_and) X(V_OR, bit_or) X(V_XOR, bit_xor) \
  X(V_EQ, equal) X(V_LTU, less_unsigned) X(V_LTS, less_signed) X(V_MINU, min_unsigned) \
  X(V_MAXU, max_unsigned) X(V_MINS, min_signed) X(V_MAXS, max_signed) X(V_ADDUS, add_sat_unsigned) \
  X(V_SUBUS, sub_sat_unsigned) X(V_ADDSS, add_sat_signed) X(V_SUBSS, sub_sat_signed)
// clang-format on

/// Of one word. Comparisons give 0 or all ones.
namespace word {

template <typename Word>
constexpr auto as_signed(Word x) {
  return static_cast<std::make_signed_t<Word>>(x);
}
template <typename Word>
constexpr Word all_if(bool condition) {
  return condition ? ~Word{0} : Word{0};
}
/// The limit that a signed sum has exceeded, by its first operand.
template <typename Word>
constexpr Word limit(Word a) {
  return (a >> (8 * sizeof(Word) - 1)) + (~Word{0} >> 1);
}

#define BINARY(name, expression)        \
  template <typename Word>              \
  constexpr Word name(Word a, Word b) { \
    return expression;                  \
  }
BINARY(add, a + b)
BINARY(sub, a - b)
BINARY(mul, a* b)
BINARY(bit_and, a& b)
BINARY(bit_or, a | b)
BINARY(bit_xor, a ^ b)
BINARY(equal, all_if<Word>(a == b))
BINARY(less_unsigned, all_if<Word>(a < b))
BINARY(less_signed, all_if<Word>(as_signed(a) < as_signed(b)))
BINARY(min_unsigned, a < b ? a : b)
BINARY(max_unsigned, a < b ? b : a)
BINARY(min_signed, as_signed(a) < as_signed(b) ? a : b)
BINARY(max_signed, as_signed(a) < as_signed(b) ? b : a)
BINARY(add_sat_unsigned, a + b < a ? ~Word{0} : a + b)
BINARY(sub_sat_unsigned, a < b ? Word{0} : a - b)
BINARY(add_sat_signed, as_signed((a ^ (a + b)) & (b ^ (a + b))) < 0 ? limit(a) : a + b)
BINARY(sub_sat_signed, as_signed((a ^ b) & (a ^ (a - b))) < 0 ? limit(a) : a - b)
#undef BINARY

template <typename Word>
constexpr Word select(Word to, Word condition, Word a) {
  return (a & condition) | (to & ~condition);
}
template <typename Word>
constexpr Word shift_right_signed(Word a, unsigned count) {
  return static_cast<Word>(as_signed(a) >> count);
}

}  // namespace word

#define FUNCTIONS(Word)                                                                                 \
  /* Elements of 1, 2, 4 or 8 bytes at any alignment, in network or native order, to words and back. */ \
  void load_be(Word* to, const std::byte* from, unsigned bytes, std::size_t n);                         \
  void store_be(std::byte* to, const Word* from, unsigned bytes, std::size_t n);                        \
  void load_le(Word* to, const std::byte* from, unsigned bytes, std::size_t n);                         \
  void store_le(std::byte* to, const Word* from, unsigned bytes, std::size_t n);                        \
  void broadcast(Word* to, Word value, std::size_t n);                                                  \
  /* to = condition ? a : to */                                                                         \
  void select(Word* to, const Word* condition, const Word* a, std::size_t n);                           \
  void invert(Word* to, const Word* a, std::size_t n);                                                  \
  /* By less than a word's bits. */                                                                     \
  void shift_left(Word* to, const Word* a, unsigned count, std::size_t n);                              \
  void shift_right(Word* to, const Word* a, unsigned count, std::size_t n);                             \
  void shift_right_signed(Word* to, const Word* a, unsigned count, std::size_t n);
FUNCTIONS(std::uint32_t)
FUNCTIONS(std::uint64_t)
#undef FUNCTIONS

/// to = a op b, word by word; the three may be the same.
#define X(op, name)                                                                            \
  void name(std::uint32_t* to, const std::uint32_t* a, const std::uint32_t* b, std::size_t n); \
  void name(std::uint64_t* to, const std::uint64_t* a, const std::uint64_t* b, std::size_t n);
RAILWEAVE_VECTOR_OPS(X)
#undef X

}  // namespace railweave::engine::vectors
