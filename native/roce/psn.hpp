// SPDX-License-Identifier: Apache-2.0
// Packet sequence numbers. The wire carries 24 bits; the machines count in 64 bits that never wrap, and
// what arrives is placed within half a circle (2^23) of a number that the machine knows.
#pragma once

#include <cstdint>

namespace railweave::roce {

using Sequence = std::int64_t;

inline constexpr std::uint32_t kPsnMask = 0xff'ffff;
inline constexpr Sequence kPsnHalf = Sequence{1} << 23;

constexpr std::uint32_t psn_of(Sequence sequence) { return static_cast<std::uint32_t>(sequence) & kPsnMask; }

/// The sequence nearest to `reference` whose low 24 bits are `psn`; exactly half a circle away counts as
/// behind.
constexpr Sequence sequence_near(Sequence reference, std::uint32_t psn) {
  const auto ahead = static_cast<Sequence>((psn - psn_of(reference)) & kPsnMask);
  return reference + (ahead < kPsnHalf ? ahead : ahead - 2 * kPsnHalf);
}

}  // namespace railweave::roce
