// SPDX-License-Identifier: Apache-2.0
#include "recovery/progress.hpp"

#include <algorithm>
#include <utility>

namespace railweave::recovery {

Progress::Progress(const Options& options, Time now)
    : rank_(static_cast<std::size_t>(options.rank)),
      ranks_(static_cast<std::size_t>(options.world_size), Rank{.standing = {}, .ticked = now}),
      all_ran_until_(now),
      stood_still_until_(now) {
  const std::size_t windows = (ranks_.size() + window() - 1) / window();
  step_ = timing::kStandstill + static_cast<Duration>(windows - 1) * options.heartbeat;
}

void Progress::raise(std::size_t index, const Standing& to, Time now) {
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

void Progress::hear(const Heartbeat& heartbeat, Time now) {
  for (std::size_t i = 0; i < heartbeat.standings.size(); ++i) {
    const std::size_t rank = (heartbeat.first + i) % ranks_.size();
    if (rank != rank_) raise(rank, heartbeat.standings[i], now);  // nobody knows better than oneself
  }
}

std::size_t Progress::window() const { return std::min(kWindow, ranks_.size()); }

void Progress::fill(Heartbeat& heartbeat) {
  ranks_[rank_].standing.tick = heartbeat.tick;
  const std::size_t first = window() == ranks_.size() ? 0 : heartbeat.tick * kWindow % ranks_.size();
  heartbeat.first = static_cast<std::uint16_t>(first);
  for (std::size_t i = 0; i < window(); ++i)
    heartbeat.standings.push_back(ranks_[(first + i) % ranks_.size()].standing);
}

void Progress::expire(Time now) {
  Time until = now;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (rank != rank_) until = std::min(until, ranks_[rank].ticked);
  const Duration since = until - std::exchange(all_ran_until_, until);
  if (since > step_) stood_still_until_ = until;
  ran_ += std::min(since, step_);
}

}  // namespace railweave::recovery
