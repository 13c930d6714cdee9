// SPDX-License-Identifier: Apache-2.0
#include "recovery/progress.hpp"

#include <algorithm>

namespace railweave::recovery {

void Progress::raise(std::size_t rank, std::uint32_t op) {
  if (op <= completed_[rank]) return;
  const bool was_least = completed_[rank] == least_;
  completed_[rank] = op;
  if (was_least) least_ = *std::min_element(completed_.begin(), completed_.end());
}

void Progress::completed(std::uint32_t op) { raise(rank_, op); }

void Progress::hear(const Beat& beat) {
  for (std::size_t i = 0; i < beat.completed.size(); ++i) {
    const std::size_t rank = (beat.first + i) % completed_.size();
    if (rank != rank_) raise(rank, beat.completed[i]);  // nobody knows better than oneself
  }
}

void Progress::tell(Beat& beat) const {
  const std::size_t ranks = completed_.size();
  beat.completed.resize(std::min(kWindow, ranks));
  const std::size_t first = ranks <= kWindow ? 0 : beat.tick * kWindow % ranks;
  beat.first = static_cast<std::uint16_t>(first);
  for (std::size_t i = 0; i < beat.completed.size(); ++i) beat.completed[i] = completed_[(first + i) % ranks];
}

}  // namespace railweave::recovery
