// SPDX-License-Identifier: Apache-2.0
#include "agent/pieces.hpp"

#include <algorithm>
#include <stdexcept>

namespace railweave {
namespace {

bool lives(const Piece& piece, const recovery::Commit& commit) {
  return !piece.repair && recovery::has(commit.alive, piece.rail);
}

// count * part / whole, which may not fit in between; part <= whole.
std::size_t scaled(std::size_t count, std::size_t part, std::size_t whole) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::size_t>(Wide{count} * part / whole);
}

void spread(const Piece& piece, std::size_t bytes, std::span<const std::uint64_t> rates,
            recovery::RailSet alive, std::vector<Piece>& onto) {
  std::size_t whole = 0;
  for (std::size_t rail = 0; rail < rates.size(); ++rail)
    whole += recovery::has(alive, rail) ? rates[rail] : 0;
  std::size_t upto = 0;
  std::size_t begin = 0;
  for (std::size_t rail = 0; rail < rates.size(); ++rail) {
    if (!recovery::has(alive, rail)) continue;
    upto += rates[rail];
    const std::size_t end = bytes < kLeastRepairBytes ? piece.count : scaled(piece.count, upto, whole);
    if (end == begin) continue;
    Piece cut = piece;
    cut.rail = rail;
    cut.offset = piece.offset + begin;
    cut.count = end - begin;
    onto.push_back(cut);
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
                         bool complete, std::span<const Piece> pieces, const recovery::Commit& commit) {
  std::vector<Piece> after;
  std::vector<Piece> lost;
  for (const Piece& piece : pieces) {
    if (lives(piece, commit)) {
      after.push_back(piece);
      continue;
    }
    const recovery::Reach& reach = (piece.repair ? commit.repair : commit.main).at(piece.rail);
    if (call.op_index < reach.least) continue;
    Piece again = piece;
    again.repair = true;
    again.done = false;
    again.id = 0;
    const bool fetched = call.collective == Collective::kAllReduce && call.op_index < reach.done;
    if (piece.fetch_from < 0 && fetched) again.fetch_from = reach.rank;
    // What is fetched is what lies here already, bit for bit. What is done anew need not be: the call waits.
    again.needed = again.fetch_from >= 0 ? piece.needed && !piece.done : !complete;
    lost.push_back(again);
  }
  if (lost.empty()) return after;
  if (commit.alive == 0) throw std::invalid_argument("a commit without a rail that lives");
  std::sort(lost.begin(), lost.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  for (const Piece& piece : lost)
    spread(piece, tensor_bytes(call, piece.count, world_size), rates, commit.alive, after);
  return after;
}

}  // namespace railweave
