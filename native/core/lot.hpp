// SPDX-License-Identifier: Apache-2.0
// How much is sent at once where the rate of a link is known. A lab's shapers let this amount pass whole.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/time.hpp"

namespace railweave {

inline constexpr Duration kPacingQuantum = kMillisecond;  // of link time

/// Bytes that a link carries in this time. `rate_bps` is in bits per second.
constexpr std::size_t bytes_in(Duration time, std::uint64_t rate_bps) {
  return static_cast<std::size_t>(static_cast<double>(time) / kSecond * static_cast<double>(rate_bps) / 8);
}

}  // namespace railweave
