// SPDX-License-Identifier: Apache-2.0
// Why a rail, or a whole communicator, cannot go on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace railweave {

/// kSilent is for the agent alone: the peer, or the path to it on this rail, is gone, and other rails may
/// know which. Connections may be carried on by a restart of the rail; all other failures are final.
enum class FailureKind : std::uint8_t { kPeerLost, kMismatch, kRailDown, kInternal, kSilent };

struct Failure {
  FailureKind kind;
  int rank;                                 // the peer concerned, or -1
  std::string message;                      // names what happened, what was expected, what to do
  std::string rail{};                       // where it happened, if not on the rail that reports it
  std::optional<std::uint32_t> op_index{};  // of this rank's call that it happened in, if that is known
  // Of kSilent: the other end has ended the connection itself. Of the rest: the peer has reported the
  // failure, and has ended.
  bool by_peer = false;
};

}  // namespace railweave
