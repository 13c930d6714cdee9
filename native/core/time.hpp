// SPDX-License-Identifier: Apache-2.0
// Time as the protocol machines see it: a number that the caller passes in.
#pragma once

#include <cstdint>
#include <limits>

namespace railweave {

using Time = std::int64_t;  // nanoseconds on a monotonic clock, or of a simulation
using Duration = std::int64_t;

inline constexpr Time kNever = std::numeric_limits<Time>::max();
inline constexpr Duration kMicrosecond = 1'000;
inline constexpr Duration kMillisecond = 1'000'000;
inline constexpr Duration kSecond = 1'000'000'000;

}  // namespace railweave
