// SPDX-License-Identifier: Apache-2.0
#include "agent/pieces.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace railweave {
namespace {

bool lives(const Piece& piece, const recovery::Commit& commit) {
  return !piece.repair && recovery::has(commit.alive, piece.rail);
}

// count * part / whole without overflow of the product; part <= whole.
std::size_t scaled(std::size_t count, std::size_t part, std::size_t whole) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::size_t>(Wide{count} * part / whole);
}

// Joins neighbouring pieces that are repaired in the same way.
std::vector<Piece> joined(std::vector<Piece> pieces) {
  std::ranges::sort(pieces, {}, &Piece::offset);
  std::vector<Piece> whole;
  for (const Piece& piece : pieces) {
    if (!whole.empty() && whole.back().offset + whole.back().count == piece.offset &&
        whole.back().fetch_from == piece.fetch_from) {
      whole.back().count += piece.count;
      whole.back().needed |= piece.needed;
    } else {
      whole.push_back(piece);
    }
  }
  return whole;
}

// Cuts a rail's part of a repair into pieces of about the same size, at the next places of its channel.
void append(Piece part, std::size_t bytes, std::uint32_t& next_place, std::vector<Piece>& onto) {
  const std::size_t pieces =
      std::clamp<std::size_t>(bytes / kRepairBytes, 1, std::min(kMostRepairPieces, part.count));
  const std::size_t first = part.offset;
  const std::size_t count = part.count;
  for (std::size_t number = 0; number < pieces; ++number) {
    part.offset = first + scaled(count, number, pieces);
    part.count = first + scaled(count, number + 1, pieces) - part.offset;
    part.place = next_place++;
    onto.push_back(part);
  }
}

void spread(const CallDescription& call, int world_size, const Piece& lost,
            std::span<const std::uint64_t> rates, Cut& cut, std::vector<Piece>& onto) {
  const recovery::RailSet alive = cut.commit.alive;
  const bool small = tensor_bytes(call, lost.count, world_size) < kLeastRepairBytes;
  std::size_t whole = 0;
  for (std::size_t rail = 0; rail < rates.size(); ++rail)
    whole += recovery::has(alive, rail) ? rates[rail] : 0;
  std::size_t upto = 0;
  std::size_t begin = 0;
  for (std::size_t rail = 0; rail < rates.size(); ++rail) {
    if (!recovery::has(alive, rail)) continue;
    upto += rates[rail];
    const std::size_t end = small ? lost.count : scaled(lost.count, upto, whole);
    if (end == begin) continue;
    Piece part = lost;
    part.rail = rail;
    part.offset = lost.offset + begin;
    part.count = end - begin;
    append(part, tensor_bytes(call, part.count, world_size), cut.places[rail], onto);
    begin = end;
  }
}

}  // namespace

CallBytes bytes_of(const CallDescription& call, int rank, int world_size) {
  const std::size_t one = call.count * item_size(call.dtype);
  const std::size_t all = one * static_cast<std::size_t>(world_size);
  switch (call.collective) {
    case Collective::kAllReduce:
      return {.input = one, .output = one};
    case Collective::kReduceScatter:
      return {.input = all, .output = one};
    case Collective::kAllGather:
      return {.input = one, .output = all};
    case Collective::kBroadcast:
      return {.input = call.root == rank ? one : 0, .output = one};
  }
  __builtin_unreachable();
}

std::vector<Piece> recut(const CallDescription& call, int world_size, std::span<const std::uint64_t> rates,
                         bool complete, std::span<const Piece> pieces, Cut& cut) {
  const recovery::Commit& commit = cut.commit;
  std::vector<Piece> after;
  std::vector<Piece> lost;
  for (const Piece& piece : pieces) {
    if (lives(piece, commit)) {
      const bool begun = cut.mains[piece.rail]++ < commit.main[piece.rail].done;
      if (begun || !piece.movable || !cut.returns) {
        after.push_back(piece);
      } else {
        lost.push_back({.rail = piece.rail, .offset = piece.offset, .count = piece.count, .repair = true});
      }
      continue;
    }
    const recovery::Reach& reach = (piece.repair ? commit.repair : commit.main).at(piece.rail);
    const std::uint32_t place = piece.repair ? piece.place : call.op_index;
    if (place < reach.least) continue;
    Piece again = piece;
    again.repair = true;
    again.movable = false;
    again.done = false;
    again.id = 0;
    const bool fetched = call.collective == Collective::kAllReduce && place < reach.done;
    if (piece.fetch_from < 0 && fetched) again.fetch_from = reach.rank;
    // A fetched piece is a copy of the bits that a complete rank has. A piece done again may differ: the call
    // waits.
    again.needed = again.fetch_from >= 0 ? piece.needed && !piece.done : !complete;
    lost.push_back(again);
  }
  if (lost.empty()) return after;
  if (commit.alive == 0) throw std::invalid_argument("a commit without a rail that lives");
  for (const Piece& piece : joined(std::move(lost))) spread(call, world_size, piece, rates, cut, after);
  return after;
}

}  // namespace railweave
