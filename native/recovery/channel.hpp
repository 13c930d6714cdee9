// SPDX-License-Identifier: Apache-2.0
// What has become of a rail's main channel on this rank. All that may happen is one table.
#pragma once

#include <cstdint>
#include <optional>

#include "recovery/datagram.hpp"

namespace railweave::recovery {

enum class ChannelInput : std::uint8_t {
  kExclude,  // a PREPARE goes on without the rail
  kHalt,     // rank 0 has decided to halt this incarnation
  kHalted,   // the agent has halted it
  kRestart,  // rank 0 has decided to start the next incarnation
  kPassed,   // the agent's trial was right
  kFailed,   // or not
  kAdmit,    // a commit with the rail alive
};
inline constexpr std::size_t kChannelInputs = 7;

/// Nothing: the input is not allowed in that state.
std::optional<ChannelState> next_channel_state(ChannelState state, ChannelInput input);

}  // namespace railweave::recovery
