// SPDX-License-Identifier: Apache-2.0
// Heartbeats on a TCP connection, and detection of silent peers.
#include <algorithm>
#include <string>

#include "rails/tcp_connection.hpp"

namespace railweave {

bool TcpConnection::sends_heartbeats() const {
  return liveness_.interval > 0 && !dead_ && !aborted_ && !sent_goodbye_ && !peer_left_;
}

Time TcpConnection::deadline() const {
  if (!sends_heartbeats()) return kNever;
  const Time silent_at = liveness_.timeout > 0 ? heard_at_ + liveness_.timeout : kNever;
  return std::min(silent_at, spoke_at_ + liveness_.interval);
}

void TcpConnection::expire(Time now) {
  // A rank cannot hear its peer while a message is parked, or while the rank itself is not scheduled.
  const bool deaf = parked_ || now - deadline() > liveness_.interval;
  if (deaf) heard_at_ = now;
  if (liveness_.timeout > 0 && now >= heard_at_ + liveness_.timeout) {
    const auto silence = std::to_string((now - heard_at_) / kMillisecond);
    return fail_silent(false, "has given no sign of life for " + silence + " ms", now);
  }
  if (now < spoke_at_ + liveness_.interval) return;
  spoke_at_ = now;  // frames that wait to be sent are signs of life as well
  if (out_.empty()) send_heartbeat(now);
}

// A rank that only waits sends no messages. So its heartbeats carry its label, to let the peer find a
// mismatch.
void TcpConnection::send_heartbeat(Time now) {
  enqueue(FrameType::kHeartbeat, {}, now, posted_.empty() ? MessageLabel{} : posted_.front().label);
}

bool TcpConnection::heard_recently(Time now) const {
  return sends_heartbeats() && now - heard_at_ < 2 * liveness_.interval;
}

}  // namespace railweave
