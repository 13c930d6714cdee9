// SPDX-License-Identifier: Apache-2.0
// Vectors of 32-bit words: what a fused run of primitives over header fields and registers becomes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railweave::engine::vectors {

enum class Binary {
  kAdd,
  kSub,
  kMul,
  kAnd,
  kOr,
  kXor,
  kEq,
  kLtU,
  kLtS,
  kMinU,
  kMaxU,
  kMinS,
  kMaxS,
  kAddUS,
  kSubUS,
  kAddSS,
  kSubSS
};

/// `n` words in network order, at any alignment, to native words and back.
void load_be(std::uint32_t* to, const std::byte* from, std::size_t n);
void store_be(std::byte* to, const std::uint32_t* from, std::size_t n);
void broadcast(std::uint32_t* to, std::uint32_t value, std::size_t n);
/// Comparisons give 0 or all ones.
void apply(Binary op, std::uint32_t* to, const std::uint32_t* a, const std::uint32_t* b, std::size_t n);
/// to = condition ? a : to
void select(std::uint32_t* to, const std::uint32_t* condition, const std::uint32_t* a, std::size_t n);
void invert(std::uint32_t* to, const std::uint32_t* a, std::size_t n);
/// Shifts by 0…31.
void shift_left(std::uint32_t* to, const std::uint32_t* a, unsigned count, std::size_t n);
void shift_right(std::uint32_t* to, const std::uint32_t* a, unsigned count, std::size_t n);
void shift_right_signed(std::uint32_t* to, const std::uint32_t* a, unsigned count, std::size_t n);

}  // namespace railweave::engine::vectors
