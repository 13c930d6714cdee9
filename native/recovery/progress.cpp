// SPDX-License-Identifier: Apache-2.0
#include "recovery/progress.hpp"

#include <algorithm>

namespace railweave::recovery {

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

bool Progress::all_awake(Time now) const {
  const std::size_t windows = (ranks_.size() + window() - 1) / window();
  const Duration around = static_cast<Duration>(ranks_.size() * windows) * heartbeat_;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (rank != rank_ && now - ranks_[rank].ticked > timing::kAwake + around) return false;
  return true;
}

Time Progress::all_ran_until(Time now) const {
  Time until = now;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (rank != rank_) until = std::min(until, ranks_[rank].ticked);
  return until;
}

}  // namespace railweave::recovery
