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

/// Numbers only grow, so what comes late or twice changes nothing. With more than kWindow ranks a heartbeat
/// carries a window of them, and the next one the following ones.
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
      if (rank != rank_) raise(rank, heartbeat.standings[i], now);  // nobody knows better than oneself
    }
  }
  /// Fills a heartbeat that has its tick.
  void fill(Heartbeat& heartbeat) {
    ranks_[rank_].standing.tick = heartbeat.tick;
    const std::size_t first = window() == ranks_.size() ? 0 : heartbeat.tick * kWindow % ranks_.size();
    heartbeat.first = static_cast<std::uint16_t>(first);
    for (std::size_t i = 0; i < window(); ++i)
      heartbeat.standings.push_back(ranks_[(first + i) % ranks_.size()].standing);
  }

  /// The least of all ranks.
  const Standing& least() const { return least_; }
  /// To be called at each turn of the loop, when all that has come has been heard.
  void expire(Time now) {
    Time until = now;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (rank != rank_) until = std::min(until, ranks_[rank].ticked);
    const Duration since = until - std::exchange(all_ran_until_, until);
    if (since > step_) stood_still_until_ = until;
    ran_ += std::min(since, step_);
  }
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
    // Only a rank that was the last can move the least.
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
  Duration step_;  // at most that much counts as run between two signs of life of all
  std::vector<Rank> ranks_;
  Time all_ran_until_;
  Duration ran_ = 0;
  Time stood_still_until_;
  Standing least_{};
};

}  // namespace railweave::recovery
