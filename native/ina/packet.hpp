// SPDX-License-Identifier: Apache-2.0
// The aggregation packet: 16 bytes of header in network order, then the lanes. docs/reference/wire-format.md
// describes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.hpp"

namespace railweave::ina {

inline constexpr std::uint8_t kVersion = 1;
inline constexpr std::uint16_t kUdpPort = 5257;
inline constexpr std::size_t kHeaderBytes = 16;
inline constexpr std::size_t kLaneBytes = 4;
inline constexpr std::uint32_t kSlots = 16384;  // a switch's slots, both copies counted
inline constexpr std::uint8_t kMaxChildren = 31;

enum class Kind : std::uint8_t { kContribute = 0, kResult = 1, kProbe = 2, kSpread = 3, kFetch = 4 };
enum class WireOp : std::uint8_t { kSum = 0, kMax = 1 };

namespace flag {
inline constexpr std::uint8_t kRetransmission = 1;
inline constexpr std::uint8_t kNonfinite = 2;  // a contributor saw NaN or Inf
inline constexpr std::uint8_t kOverflow = 4;   // a contributor has values that wide lanes do not hold
inline constexpr std::uint8_t kMismatch = 8;   // contributions with different marks
inline constexpr std::uint8_t kToRoot = 16;
inline constexpr std::uint8_t kOwner = 32;  // the result is only for the rank that sets this
inline constexpr std::uint8_t kLast = 64;   // a contributor has begun no multicast after this call yet
}  // namespace flag

/// The header's fields as numbers. `kind` and `op` stay raw, because arriving packets may hold any value.
struct Header {
  std::uint8_t version = kVersion;  // 4 bits
  std::uint8_t kind = 0;            // 4 bits
  std::uint8_t op = 0;
  std::uint16_t group = 0;
  std::uint8_t child = 0;
  std::uint8_t flags = 0;
  std::uint16_t slot = 0;  // bit 0 is the copy
  std::uint32_t round = 0;
  std::uint32_t mark = 0;

  bool operator==(const Header&) const = default;
};

inline constexpr std::uint32_t kGroupAt = 2;  // offset of the group in a header

constexpr std::size_t packet_bytes(std::size_t lanes) { return kHeaderBytes + lanes * kLaneBytes; }

/// Writes kHeaderBytes to `to`.
inline void encode(const Header& header, std::byte* to) {
  store_fields(to, static_cast<std::uint8_t>(header.version << 4 | (header.kind & 0xf)), header.op,
               header.group, header.child, header.flags, header.slot, header.round, header.mark);
}

/// Reads kHeaderBytes from `from`. Every byte pattern is a header, and the caller checks the fields.
inline Header decode(const std::byte* from) {
  Header header;
  load_fields(from, header.kind, header.op, header.group, header.child, header.flags, header.slot,
              header.round, header.mark);
  header.version = header.kind >> 4;
  header.kind &= 0xf;
  return header;
}

}  // namespace railweave::ina
