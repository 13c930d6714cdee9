// SPDX-License-Identifier: Apache-2.0
// Whether a rank is dead: its successor hears nothing for long, or nobody listens at its addresses any more.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recovery/types.hpp"

namespace railweave::recovery {

/// A port unreachable proves nothing by itself: anybody can send one, and a host may send one for a rank that
/// lives, as while its interface is replaced. So a rank with refusals is asked whether it lives. It is dead
/// if every rail refuses what this rank has sent there, and the rank says nothing for a while. Refusals age.
class Vitals {
 public:
  Vitals(const Options& options, Time now);

  /// Something came from the rank: it lives.
  void hear(int rank) { ranks_[static_cast<std::size_t>(rank)] = {}; }
  /// A port unreachable came, perhaps for what was sent there: the next `asked` has the rank.
  void doubt(int rank) { ranks_[static_cast<std::size_t>(rank)].doubted = true; }
  /// It came for that.
  void refused(std::size_t rail, int rank, Time now);
  /// The ranks to ask now, at every heartbeat.
  std::vector<int> asked(Time now);
  /// A rank that is dead by either sign. `last_heard`: of the predecessor. `patience`: with a rank that is
  /// asked.
  std::optional<PeerLost> judge(RailSet alive, Time last_heard, Duration patience, Time now) const;
  Time deadline(Time last_heard) const;

 private:
  struct Rank {
    std::array<std::uint8_t, kMaxRails> refusals{};
    Time since = kNever;  // the first of them
    Time last = kNever;
    bool doubted = false;
  };
  static bool aged(const Rank& rank, Time now) { return now - rank.last > timing::kPeerTimeout; }

  const Options options_;
  const int predecessor_;
  const Time started_;
  std::vector<Rank> ranks_;
};

}  // namespace railweave::recovery
