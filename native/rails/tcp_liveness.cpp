// SPDX-License-Identifier: Apache-2.0
// Signs of life on a TCP connection, and the lack of them.
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
  // While a message waits for its receive this rank does not read, and one that was not run has not heard.
  const bool deaf = parked_ || now - deadline() > liveness_.interval;
  if (deaf) heard_at_ = now;
  if (liveness_.timeout > 0 && now >= heard_at_ + liveness_.timeout) {
    const auto silence = std::to_string((now - heard_at_) / kMillisecond);
    return fail_silent(false, "has given no sign of life for " + silence + " ms", now);
  }
  if (now < spoke_at_ + liveness_.interval) return;
  spoke_at_ = now;  // what waits to be sent is a sign of life as well
  if (out_.empty()) send_heartbeat(now);
}

// A rank that only waits sends nothing that bears its label: so the peer would not learn that they differ.
void TcpConnection::send_heartbeat(Time now) {
  enqueue(FrameType::kHeartbeat, {}, now, posted_.empty() ? MessageLabel{} : posted_.front().label);
}

bool TcpConnection::heard_recently(Time now) const {
  return sends_heartbeats() && now - heard_at_ < 2 * liveness_.interval;
}

}  // namespace railweave
