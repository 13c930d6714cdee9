// SPDX-License-Identifier: Apache-2.0
// Vectors of 32-bit words: what a fused run of primitives over header fields and registers becomes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railweave::engine::vectors {

/// to = a op b, word by word; the three may be the same.
using Binary = void(std::uint32_t* to, const std::uint32_t* a, const std::uint32_t* b, std::size_t n);
Binary add, sub, mul, bit_and, bit_or, bit_xor, min_unsigned, max_unsigned, min_signed, max_signed;
Binary add_sat_unsigned, sub_sat_unsigned, add_sat_signed, sub_sat_signed;
Binary equal, less_unsigned, less_signed;  // 0 or all ones

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
