// SPDX-License-Identifier: Apache-2.0
#include "recovery/lane.hpp"

#include <array>

namespace railweave::recovery {
namespace {

using Next = std::optional<LaneState>;
using Row = std::array<Next, kLaneInputs>;

constexpr Next kNo = std::nullopt;
constexpr auto kUp = LaneState::kUp;
constexpr auto kHalting = LaneState::kHalting;
constexpr auto kHalted = LaneState::kHalted;
constexpr auto kRestarting = LaneState::kRestarting;
constexpr auto kPassed = LaneState::kPassed;
constexpr auto kFailed = LaneState::kFailed;

// A proposal may leave out any lane in any state. An incarnation may be abandoned before this rank has heard
// of it, or after it has gone down with a round: then it is halted already. A result that comes after the
// abandonment is nobody's, and a lane that is up is not restarted: rank 0 waits until all have halted it.
constexpr std::array<Row, kLaneStates> kTable = {{
    //               kExclude  kAbandon  kHalted  kRestart     kPassed   kFailed   kAdmit
    /* up */ Row{{kHalting, kUp, kNo, kNo, kNo, kNo, kUp}},
    /* halting */ Row{{kHalting, kHalting, kHalted, kNo, kHalting, kHalting, kNo}},
    /* halted */ Row{{kHalted, kHalted, kHalted, kRestarting, kHalted, kHalted, kNo}},
    /* restarting */ Row{{kHalting, kHalting, kNo, kNo, kPassed, kFailed, kNo}},
    /* passed */ Row{{kHalting, kHalting, kNo, kNo, kNo, kFailed, kUp}},
    /* failed */ Row{{kHalting, kHalting, kNo, kNo, kNo, kFailed, kNo}},
}};

}  // namespace

Next next_lane_state(LaneState state, LaneInput input) {
  return kTable[static_cast<std::size_t>(state)][static_cast<std::size_t>(input)];
}

}  // namespace railweave::recovery
