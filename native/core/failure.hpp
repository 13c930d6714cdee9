// SPDX-License-Identifier: Apache-2.0
// Why a rail, or a whole communicator, cannot go on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace railweave {

/// kSilent is for the agent alone. The peer, or only the path to it on this rail, is gone, and other rails
/// may know which. A restart of the rail may carry on connections. All other failures are final.
enum class FailureKind : std::uint8_t { kPeerLost, kMismatch, kRailDown, kInternal, kSilent };

struct Failure {
  FailureKind kind;
  int rank;                                 // the peer concerned, or -1
  std::string message;                      // the event, the expected state, and the remedy
  std::string rail{};                       // where it happened, if not on the rail that reports it
  std::optional<std::uint32_t> op_index{};  // this rank's call in which it happened, if known
  // kSilent: the other end has ended the connection itself. Other kinds: the peer has reported the failure,
  // and has ended.
  bool by_peer = false;
};

}  // namespace railweave
