// SPDX-License-Identifier: Apache-2.0
#include "roce/retransmission_timer.hpp"

#include <algorithm>

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
  round_trip_.sample(now - probe_sent_);
}

Duration RetransmissionTimer::timeout() const {
  const Duration base =
      round_trip_.measured()
          ? std::max(options_.min_timeout, round_trip_.smoothed() + 4 * round_trip_.variation())
          : options_.first_timeout;
  const int doublings = std::min(doublings_, 16);
  return std::min(options_.max_timeout, base << doublings);
}

}  // namespace railweave::roce
