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
  Progress(const Options& options, Time now);

  void completed(std::uint32_t op) { raise(rank_, {.completed = op}, kNever); }
  void submitted(std::uint32_t op) { raise(rank_, {.submitted = op}, kNever); }
  void hear(const Heartbeat& heartbeat, Time now);
  /// Fills a heartbeat that has its tick.
  void fill(Heartbeat& heartbeat);

  /// The least of all ranks.
  const Standing& least() const { return least_; }
  /// To be called at each turn of the loop, when all that has come has been heard.
  void expire(Time now);
  /// How long all ranks, this one too, have run so far, as far as is known here. It stops while a process
  /// stands still: a long time without news of a rank counts as one standstill.
  Duration ran() const { return ran_; }
  /// When the last standstill ended.
  Time stood_still_until() const { return stood_still_until_; }

 private:
  struct Rank {
    Standing standing;
    Time ticked;  // when its tick grew last
  };

  void raise(std::size_t rank, const Standing& to, Time now);
  std::size_t window() const;

  std::size_t rank_;
  Duration step_;  // at most that much counts as run between two signs of life of all
  std::vector<Rank> ranks_;
  Time all_ran_until_;
  Duration ran_ = 0;
  Time stood_still_until_;
  Standing least_{};
};

}  // namespace railweave::recovery
