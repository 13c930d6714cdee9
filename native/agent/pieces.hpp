// SPDX-License-Identifier: Apache-2.0
// Cuts calls into pieces for the rails, and cuts them again when rails die. All functions are pure; all ranks
// have the same arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/collective.hpp"
#include "recovery/types.hpp"

namespace railweave {

/// One rail's part of a tensor, in elements (of one shard for reduce_scatter and all_gather). The parts of a
/// call cover it without overlap. A rail does its parts one after the other. Parts that it has not begun may
/// go to a rail that comes back.
struct Part {
  std::size_t rail;
  std::size_t offset;
  std::size_t count;
};

/// A part of a call on a channel: the rail's main channel, or its repair channel of this epoch.
struct Piece {
  std::size_t rail;
  std::size_t offset;
  std::size_t count;
  bool repair = false;
  bool movable = false;     // may go to a rail that comes back, until a rank begins it
  int fetch_from = -1;      // this rank broadcasts its result; -1: the call's own collective runs
  bool needed = true;       // this rank's call waits for it; false: this rank only takes part
  bool done = false;        // on this rank
  std::uint32_t place = 0;  // among all pieces of its repair channel, the same on all ranks
  std::uint64_t id = 0;     // its slice's id, once it has a place on a channel

  bool operator==(const Piece&) const = default;
};

/// Approximate size of a repaired piece. If another rail fails during the repair, pieces that all ranks have
/// are not repeated.
inline constexpr std::size_t kRepairBytes = 1 << 18;
/// A rail's part of a contiguous lost range is cut into at most this many pieces.
inline constexpr std::size_t kMostRepairPieces = 64;
/// A lost range smaller than this goes to one rail.
inline constexpr std::size_t kLeastRepairBytes = 64 * 1024;

/// If a call has several parts on a rail, the rail gets at most this many at once. The other parts may go to
/// a rail that comes back.
inline constexpr std::size_t kMostBegun = 2;

/// A rank's position on a repair channel on which it needs nothing more of the calls before the boundary.
inline constexpr std::uint32_t kAllRepaired = UINT32_MAX;

/// A decision and its progress: calls are cut in order, some of them only when they are submitted.
struct Cut {
  recovery::Commit commit;
  bool returns = false;                 // a rail comes back
  std::vector<std::uint32_t> mains{};   // by rail: pieces counted so far on its main channel
  std::vector<std::uint32_t> places{};  // by rail: places given out so far on its repair channel
};

/// Sizes of a rank's arrays in a call.
struct CallBytes {
  std::size_t input;  // 0: not read, for example by the receivers of a broadcast
  std::size_t output;
};
CallBytes bytes_of(const CallDescription& call, int rank, int world_size);

/// Returns the pieces of a call before the boundary of `cut.commit`. Pieces on main channels of alive rails
/// stay. If a rail comes back, movable pieces that no rank has begun move to repair channels. Pieces on dead
/// main channels and old repair channels are lost, unless all ranks have them. If some rank has a lost
/// all_reduce piece, the others fetch its copy. All other lost pieces are done again from inputs that are
/// still valid. Contiguous lost ranges are spread over the repair channels of the alive rails in proportion
/// to `rates` (by rail, the same on all ranks, none 0). Each rail's part is cut into pieces, which take the
/// next places in `cut`. All ranks get the same pieces from the same commits; only `needed` and `done`
/// differ. `complete`: this rank has completed the call.
std::vector<Piece> recut(const CallDescription& call, int world_size, std::span<const std::uint64_t> rates,
                         bool complete, std::span<const Piece> pieces, Cut& cut);

}  // namespace railweave
