// SPDX-License-Identifier: Apache-2.0
#include "roce/retransmission_timer.hpp"

#include <algorithm>
#include <cstdlib>

namespace railweave::roce {

void RetransmissionTimer::sent(Sequence sequence, Time now) {
  if (probing_) return;
  probing_ = true;
  probe_ = sequence;
  probe_sent_ = now;
}

void RetransmissionTimer::progressed(Sequence unacked, Time now) {
  doublings_ = 0;
  if (!probing_ || unacked <= probe_) return;
  probing_ = false;
  const Duration sample = now - probe_sent_;
  if (!measured_) {
    smoothed_ = sample;
    variation_ = sample / 2;
    measured_ = true;
    return;
  }
  variation_ += (std::abs(sample - smoothed_) - variation_) / 4;
  smoothed_ += (sample - smoothed_) / 8;
}

Duration RetransmissionTimer::timeout() const {
  const Duration base =
      measured_ ? std::max(options_.min_timeout, smoothed_ + 4 * variation_) : options_.first_timeout;
  const int doublings = std::min(doublings_, 16);
  return std::min(options_.max_timeout, base << doublings);
}

}  // namespace railweave::roce
