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

class Vitals {
 public:
  Vitals(const Options& options, Time now);

  /// Something came from the rank: it lives.
  void hear(int rank) { ranks_[static_cast<std::size_t>(rank)] = {}; }
  /// A port unreachable came for what was sent there. One may be a mistake or a lie; a process that has ended
  /// gives them for every datagram, on every rail.
  void refused(std::size_t rail, int rank, Time now);
  /// A rank that is dead by either sign. `last_heard`: of the predecessor.
  std::optional<PeerLost> judge(RailSet alive, Time last_heard, Time now) const;
  Time deadline(Time last_heard) const;

 private:
  struct Rank {
    std::array<std::uint8_t, kMaxRails> refusals{};
    Time since = kNever;
  };

  const Options options_;
  const int predecessor_;
  const Time started_;
  std::vector<Rank> ranks_;
};

}  // namespace railweave::recovery
