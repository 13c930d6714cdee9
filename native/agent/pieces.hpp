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
/// call do not overlap and cover it. A rail does several parts one after the other; those that it has not
/// begun go to another one that comes back.
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
  bool movable = false;     // until a rank begins it: to a rail that comes back
  int fetch_from = -1;      // this rank broadcasts its result; -1: the call's own collective runs
  bool needed = true;       // this rank's call waits for it; else it only takes part
  bool done = false;        // here
  std::uint32_t place = 0;  // among all pieces of its repair channel, the same on all ranks
  std::uint64_t id = 0;     // of its slice, once it has a place on a channel

  bool operator==(const Piece&) const = default;
};

/// What is lost of a call is repaired in pieces of about this size: when another rail fails meanwhile, those
/// that all ranks have are not repeated.
inline constexpr std::size_t kRepairBytes = 1 << 18;
/// A rail's part of what lies together is cut into larger pieces rather than into more of them.
inline constexpr std::size_t kMostRepairPieces = 64;
/// Less than this goes whole to one rail.
inline constexpr std::size_t kLeastRepairBytes = 64 * 1024;

/// Of a call that has several parts on one rail, so many are with that rail at once: the others may go to one
/// that comes back.
inline constexpr std::size_t kMostBegun = 2;

/// A rank's position on a repair channel on which it has all that it needs of the calls before the boundary.
inline constexpr std::uint32_t kAllRepaired = UINT32_MAX;

/// A decision as far as it has been carried out: calls are cut in order, some of them when they are
/// submitted.
struct Cut {
  recovery::Commit commit;
  bool returns = false;                 // a rail comes back
  std::vector<std::uint32_t> mains{};   // by rail: so many pieces had a place on its main channel
  std::vector<std::uint32_t> places{};  // by rail: so many pieces have a place on its repair channel
};

/// Sizes of a rank's arrays in a call.
struct CallBytes {
  std::size_t input;  // 0: not read, as by the receivers of a broadcast
  std::size_t output;
};
CallBytes bytes_of(const CallDescription& call, int rank, int world_size);

/// What becomes of the pieces of a call before the boundary of `cut.commit`. Pieces on main channels that
/// live stay, but for movable ones that no rank has begun when a rail comes back: these are done on the
/// repair channels. Of the others, those that all ranks have are gone. What a rank has of an all_reduce is
/// fetched from it, what none has is done anew, on the repair channels of all rails that live: what lies
/// together is spread in proportion to `rates` (by rail, the same on all ranks, none 0), and each rail's part
/// cut into pieces, which take the next places in `cut`. Other collectives are done anew from inputs that all
/// ranks have kept. Every rank gets the same pieces from the same commits; `needed` and `done` alone are its
/// own. `complete`: the call is, here.
std::vector<Piece> recut(const CallDescription& call, int world_size, std::span<const std::uint64_t> rates,
                         bool complete, std::span<const Piece> pieces, Cut& cut);

}  // namespace railweave
