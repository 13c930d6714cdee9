// SPDX-License-Identifier: Apache-2.0
// CRC-32 (IEEE 802.3, reflected, polynomial 0x04C11DB7): of a RoCE ICRC, and P4's crc32.
#pragma once

#include <array>
#include <cstdint>

#include "core/bytes.hpp"

namespace railweave {

inline constexpr std::uint32_t kCrcStart = 0xffff'ffff;

/// The words, in the host's order, that an ICRC covers up to the end of the BTH.
using CrcHead = std::array<std::uint64_t, 6>;

/// Continues a CRC register over bytes. It starts at `kCrcStart`, and the CRC is its complement. Uses
/// carry-less multiplication if the processor has it, else slicing by eight.
std::uint32_t crc32_update(std::uint32_t state, Bytes bytes);
/// The register after `head` and the bytes that follow.
std::uint32_t crc32_behind(const CrcHead& head, Bytes bytes);
/// The same, and copies the bytes to `to`. They do not overlap.
std::uint32_t crc32_copy_behind(const CrcHead& head, Bytes bytes, std::byte* to);

/// The portable path alone, for comparison.
std::uint32_t crc32_update_by_table(std::uint32_t state, Bytes bytes);

}  // namespace railweave
