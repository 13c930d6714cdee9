// SPDX-License-Identifier: Apache-2.0
// Vectors of 32-bit words: what a fused run of primitives over header fields and registers becomes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railweave::engine::vectors {

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

using Word = std::uint32_t;

constexpr std::int32_t as_signed(Word x) { return static_cast<std::int32_t>(x); }
constexpr Word add(Word a, Word b) { return a + b; }
constexpr Word sub(Word a, Word b) { return a - b; }
constexpr Word mul(Word a, Word b) { return a * b; }
constexpr Word bit_and(Word a, Word b) { return a & b; }
constexpr Word bit_or(Word a, Word b) { return a | b; }
constexpr Word bit_xor(Word a, Word b) { return a ^ b; }
constexpr Word equal(Word a, Word b) { return a == b ? ~0u : 0u; }
constexpr Word less_unsigned(Word a, Word b) { return a < b ? ~0u : 0u; }
constexpr Word less_signed(Word a, Word b) { return as_signed(a) < as_signed(b) ? ~0u : 0u; }
constexpr Word min_unsigned(Word a, Word b) { return a < b ? a : b; }
constexpr Word max_unsigned(Word a, Word b) { return a < b ? b : a; }
constexpr Word min_signed(Word a, Word b) { return as_signed(a) < as_signed(b) ? a : b; }
constexpr Word max_signed(Word a, Word b) { return as_signed(a) < as_signed(b) ? b : a; }
constexpr Word add_sat_unsigned(Word a, Word b) { return a + b < a ? ~0u : a + b; }
constexpr Word sub_sat_unsigned(Word a, Word b) { return a < b ? 0u : a - b; }
constexpr Word add_sat_signed(Word a, Word b) {
  const Word sum = a + b, limit = (a >> 31) + 0x7fffffffu;
  return as_signed((a ^ sum) & (b ^ sum)) < 0 ? limit : sum;
}
constexpr Word sub_sat_signed(Word a, Word b) {
  const Word difference = a - b, limit = (a >> 31) + 0x7fffffffu;
  return as_signed((a ^ b) & (a ^ difference)) < 0 ? limit : difference;
}
constexpr Word select(Word to, Word condition, Word a) { return (a & condition) | (to & ~condition); }
constexpr Word shift_right_signed(Word a, unsigned count) { return static_cast<Word>(as_signed(a) >> count); }

}  // namespace word

/// to = a op b, word by word; the three may be the same.
#define X(op, name) \
  void name(std::uint32_t* to, const std::uint32_t* a, const std::uint32_t* b, std::size_t n);
RAILWEAVE_VECTOR_OPS(X)
#undef X

/// `n` words in network order, at any alignment, to native words and back.
void load_be(std::uint32_t* to, const std::byte* from, std::size_t n);
void store_be(std::byte* to, const std::uint32_t* from, std::size_t n);
void broadcast(std::uint32_t* to, std::uint32_t value, std::size_t n);
/// to = condition ? a : to
void select(std::uint32_t* to, const std::uint32_t* condition, const std::uint32_t* a, std::size_t n);
void invert(std::uint32_t* to, const std::uint32_t* a, std::size_t n);
/// Shifts by 0…31.
void shift_left(std::uint32_t* to, const std::uint32_t* a, unsigned count, std::size_t n);
void shift_right(std::uint32_t* to, const std::uint32_t* a, unsigned count, std::size_t n);
void shift_right_signed(std::uint32_t* to, const std::uint32_t* a, unsigned count, std::size_t n);

}  // namespace railweave::engine::vectors
