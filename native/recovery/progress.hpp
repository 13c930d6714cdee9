// SPDX-License-Identifier: Apache-2.0
// How far every rank is, carried around the ring by heartbeats.
#pragma once

#include <cstdint>
#include <vector>

#include "core/time.hpp"
#include "recovery/datagram.hpp"

namespace railweave::recovery {

/// Numbers only grow, so what comes late or twice changes nothing. With more than kWindow ranks a heartbeat
/// carries a window of them, and the next one the following ones.
class Progress {
 public:
  Progress(const Options& options, Time now)
      : rank_(static_cast<std::size_t>(options.rank)),
        heartbeat_(options.heartbeat),
        ranks_(static_cast<std::size_t>(options.world_size), Rank{.standing = {}, .ticked = now}) {}

  void completed(std::uint32_t op) { raise(rank_, {.completed = op}, kNever); }
  void submitted(std::uint32_t op) { raise(rank_, {.submitted = op}, kNever); }
  void hear(const Heartbeat& heartbeat, Time now);
  /// Fills a heartbeat that has its tick.
  void fill(Heartbeat& heartbeat);

  /// The least of all ranks.
  const Standing& least() const { return least_; }
  /// Whether the ticks of all other ranks have gone on lately, as far as can be known here: their processes
  /// run.
  bool all_awake(Time now) const;
  /// Up to when all ranks are known to have run.
  Time all_ran_until(Time now) const;

 private:
  struct Rank {
    Standing standing;
    Time ticked;  // when its tick grew last
  };

  void raise(std::size_t rank, const Standing& to, Time now);
  std::size_t window() const;

  std::size_t rank_;
  Duration heartbeat_;
  std::vector<Rank> ranks_;
  Standing least_{};
};

}  // namespace railweave::recovery
