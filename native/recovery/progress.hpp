// SPDX-License-Identifier: Apache-2.0
// How far every rank is, carried around the ring by heartbeats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/time.hpp"
#include "recovery/datagram.hpp"

namespace railweave::recovery {

/// Numbers only grow, so late or repeated heartbeats change nothing. With more than kWindow ranks each
/// heartbeat carries a window of ranks, and the next heartbeat carries the next window.
class Progress {
 public:
  Progress(const Options& options, Time now)
      : rank_(static_cast<std::size_t>(options.rank)),
        ranks_(static_cast<std::size_t>(options.world_size), Rank{.standing = {}, .ticked = now}),
        all_ran_until_(now),
        stood_still_until_(now) {
    const std::size_t windows = (ranks_.size() + window() - 1) / window();
    step_ = timing::kStandstill + static_cast<Duration>(windows - 1) * options.heartbeat;
  }

  void completed(std::uint32_t op) { raise(rank_, {.completed = op}, kNever); }
  void submitted(std::uint32_t op) { raise(rank_, {.submitted = op}, kNever); }
  void hear(const Heartbeat& heartbeat, Time now) {
    for (std::size_t i = 0; i < heartbeat.standings.size(); ++i) {
      const std::size_t rank = (heartbeat.first + i) % ranks_.size();
      if (rank != rank_) raise(rank, heartbeat.standings[i], now);  // this rank knows its own numbers best
    }
  }
  /// Completes a heartbeat whose tick is set.
  void fill(Heartbeat& heartbeat) {
    ranks_[rank_].standing.tick = heartbeat.tick;
    const std::size_t first = window() == ranks_.size() ? 0 : heartbeat.tick * kWindow % ranks_.size();
    heartbeat.first = static_cast<std::uint16_t>(first);
    for (std::size_t i = 0; i < window(); ++i)
      heartbeat.standings.push_back(ranks_[(first + i) % ranks_.size()].standing);
  }

  /// The minimum over all ranks.
  const Standing& least() const { return least_; }
  /// Called at each turn of the loop, after all received datagrams have been handed in.
  void expire(Time now) {
    Time until = now;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (rank != rank_) until = std::min(until, ranks_[rank].ticked);
    const Duration since = until - std::exchange(all_ran_until_, until);
    if (since > step_) stood_still_until_ = until;
    ran_ += std::min(since, step_);
  }
  /// How long all ranks, including this one, have run, to this rank's knowledge. The clock stops while a
  /// process stands still: a long time without news of a rank counts as one standstill.
  Duration ran() const { return ran_; }
  /// When the last standstill ended.
  Time stood_still_until() const { return stood_still_until_; }

 private:
  struct Rank {
    Standing standing;
    Time ticked;  // when its tick grew last
  };

  void raise(std::size_t index, const Standing& to, Time now) {
    Rank& rank = ranks_[index];
    Standing& standing = rank.standing;
    const Standing before = standing;
    standing.completed = std::max(standing.completed, to.completed);
    standing.submitted = std::max(standing.submitted, to.submitted);
    if (to.tick > standing.tick) {
      standing.tick = to.tick;
      rank.ticked = now;
    }
    // Only a rank at the minimum can raise the minimum.
    const bool last = (before.completed == least_.completed && standing.completed > before.completed) ||
                      (before.submitted == least_.submitted && standing.submitted > before.submitted);
    if (!last) return;
    const auto least_of = [this](std::uint32_t Standing::* number) {
      return std::ranges::min(ranks_, {}, [&](const Rank& each) { return each.standing.*number; }).standing.*
             number;
    };
    least_.completed = least_of(&Standing::completed);
    least_.submitted = least_of(&Standing::submitted);
  }
  std::size_t window() const { return std::min(kWindow, ranks_.size()); }

  std::size_t rank_;
  Duration step_;  // most time that counts as run between two updates
  std::vector<Rank> ranks_;
  Time all_ran_until_;
  Duration ran_ = 0;
  Time stood_still_until_;
  Standing least_{};
};

}  // namespace railweave::recovery
