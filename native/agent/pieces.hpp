// SPDX-License-Identifier: Apache-2.0
// How a call is cut into pieces for the rails, and cut anew when rails die: pure functions of what all ranks
// know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/collective.hpp"
#include "recovery/types.hpp"

namespace railweave {

/// One rail's part of a tensor, in elements (of one shard for reduce_scatter and all_gather). The parts of a
/// call do not overlap and cover it.
struct Part {
  std::size_t rail;
  std::size_t offset;
  std::size_t count;
};

/// A part of a call on a channel: the rail's main channel, or its repair channel of the present epoch.
struct Piece {
  std::size_t rail;
  std::size_t offset;
  std::size_t count;
  bool repair = false;
  int fetch_from = -1;   // this rank broadcasts its result; -1: the call's own collective runs
  bool needed = true;    // this rank's call waits for it; else it only takes part
  bool done = false;     // here
  std::uint64_t id = 0;  // of its slice, once it has a place on a channel

  bool operator==(const Piece&) const = default;
};

/// Lost pieces smaller than this go whole to one rail.
inline constexpr std::size_t kLeastRepairBytes = 64 * 1024;

/// Sizes of a rank's arrays in a call.
struct CallBytes {
  std::size_t input;  // 0: not read, as by the receivers of a broadcast
  std::size_t output;
};
CallBytes bytes_of(const CallDescription& call, int rank, int world_size);

/// What becomes of the pieces of a call before the boundary of `commit`. Pieces on main channels that live
/// stay; of the others, those that all ranks have are gone. What a rank has of an all_reduce is fetched from
/// it, what none has is done anew, by pieces on the repair channels of all rails that live, in proportion to
/// `rates` (by rail, the same on all ranks, none 0), small ones whole on the lowest rail, in order of their
/// offsets. Other collectives are done anew from inputs that all ranks have kept. Every rank gets the same
/// pieces from the same commits; `needed` and `done` alone are its own. `complete`: the call is, here.
std::vector<Piece> recut(const CallDescription& call, int world_size, std::span<const std::uint64_t> rates,
                         bool complete, std::span<const Piece> pieces, const recovery::Commit& commit);

}  // namespace railweave
