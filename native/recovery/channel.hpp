// SPDX-License-Identifier: Apache-2.0
// The state of a rail's main channel on this rank. One table has all transitions.
#pragma once

#include <cstdint>
#include <optional>

#include "recovery/datagram.hpp"

namespace railweave::recovery {

enum class ChannelInput : std::uint8_t {
  kExclude,  // a PREPARE leaves the rail out
  kHalt,     // rank 0 has decided to halt this incarnation
  kHalted,   // the agent has halted it
  kRestart,  // rank 0 has decided to start the next incarnation
  kPassed,   // the agent's trial had the right result
  kFailed,   // the agent's trial failed
  kAdmit,    // a commit admits the rail
};
inline constexpr std::size_t kChannelInputs = 7;

/// Returns nothing if the input is not allowed in that state.
std::optional<ChannelState> next_channel_state(ChannelState state, ChannelInput input);

}  // namespace railweave::recovery
