// SPDX-License-Identifier: Apache-2.0
#include "recovery/channel.hpp"

#include <array>

namespace railweave::recovery {
namespace {

using Next = std::optional<ChannelState>;
using Row = std::array<Next, kChannelInputs>;

constexpr Next kNo = std::nullopt;
constexpr auto kUp = ChannelState::kUp;
constexpr auto kHalting = ChannelState::kHalting;
constexpr auto kHalted = ChannelState::kHalted;
constexpr auto kRestarting = ChannelState::kRestarting;
constexpr auto kPassed = ChannelState::kPassed;
constexpr auto kFailed = ChannelState::kFailed;

// A PREPARE may leave out any channel in any state. A kHalt may find a channel that is halted already: the
// incarnation never started here, or a round has halted the rail. A result after the halt has no effect. A
// channel that is up never restarts, because rank 0 waits until all ranks have halted it.
constexpr std::array<Row, kChannelStates> kTable = {{
    //               kExclude  kHalt  kHalted  kRestart     kPassed   kFailed   kAdmit
    /* up */ Row{{kHalting, kUp, kNo, kNo, kNo, kNo, kUp}},
    /* halting */ Row{{kHalting, kHalting, kHalted, kNo, kHalting, kHalting, kNo}},
    /* halted */ Row{{kHalted, kHalted, kHalted, kRestarting, kHalted, kHalted, kNo}},
    /* restarting */ Row{{kHalting, kHalting, kNo, kNo, kPassed, kFailed, kNo}},
    /* passed */ Row{{kHalting, kHalting, kNo, kNo, kNo, kFailed, kUp}},
    /* failed */ Row{{kHalting, kHalting, kNo, kNo, kNo, kFailed, kNo}},
}};

}  // namespace

Next next_channel_state(ChannelState state, ChannelInput input) {
  return kTable[static_cast<std::size_t>(state)][static_cast<std::size_t>(input)];
}

}  // namespace railweave::recovery
