// SPDX-License-Identifier: Apache-2.0
// Finds dead ranks: the successor hears nothing for long, or nobody listens at the rank's addresses.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recovery/types.hpp"

namespace railweave::recovery {

/// An ICMP port unreachable alone proves nothing. Anybody can send one. A host may also send one for a live
/// rank, for example while an interface is replaced. So a rank with refusals is asked whether it is alive.
/// The rank is dead if every rail has refused this rank's datagrams and the asked rank stays silent for a
/// while. Old refusals expire.
class Vitals {
 public:
  Vitals(const Options& options, Time now);

  /// A datagram came from the rank, so the rank is alive.
  void hear(int rank) { ranks_[static_cast<std::size_t>(rank)] = {}; }
  /// A port unreachable came for the rank, perhaps a forged one. The next `asked` returns the rank.
  void doubt(int rank) { ranks_[static_cast<std::size_t>(rank)].doubted = true; }
  /// That port unreachable quoted a datagram of this rank.
  void refused(std::size_t rail, int rank, Time now);
  /// The ranks to ask now; called at every heartbeat.
  std::vector<int> asked(Time now);
  /// Returns a dead rank. `last_heard`: of the predecessor. `patience`: the silence allowed to a rank with
  /// refusals.
  std::optional<PeerLost> judge(RailSet alive, Time last_heard, Duration patience, Time now) const;
  Time deadline(Time last_heard) const;

 private:
  struct Rank {
    std::array<std::uint8_t, kMaxRails> refusals{};
    Time since = kNever;  // time of the first refusal
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
