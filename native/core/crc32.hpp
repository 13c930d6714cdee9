// SPDX-License-Identifier: Apache-2.0
// CRC-32 (IEEE 802.3, reflected, polynomial 0x04C11DB7): of a RoCE ICRC, and P4's crc32.
#pragma once

#include <cstdint>
#include <span>

#include "core/bytes.hpp"

namespace railweave {

inline constexpr std::uint32_t kCrcStart = 0xffff'ffff;

/// Continues a CRC register over an even number of words, in the host's order, and the bytes behind them. The
/// register starts at `kCrcStart`; the CRC is its complement. Carry-less multiplication where the processor
/// has it, else slicing by eight.
std::uint32_t crc32_update(std::uint32_t state, std::span<const std::uint64_t> words, Bytes bytes);
inline std::uint32_t crc32_update(std::uint32_t state, Bytes bytes) { return crc32_update(state, {}, bytes); }

/// The same, and copies the bytes to `to`, which they do not overlap.
std::uint32_t crc32_copy(std::uint32_t state, std::span<const std::uint64_t> words, Bytes bytes,
                         std::byte* to);

/// The portable path alone, for comparison.
std::uint32_t crc32_update_by_table(std::uint32_t state, Bytes bytes);

}  // namespace railweave
