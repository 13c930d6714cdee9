// SPDX-License-Identifier: Apache-2.0
// When silence means loss: round-trip estimate and back-off after RFC 6298, with a floor fit for a local
// network.
#pragma once

#include "core/round_trip.hpp"
#include "core/time.hpp"
#include "roce/psn.hpp"
#include "roce/work.hpp"

namespace railweave::roce {

class RetransmissionTimer {
 public:
  explicit RetransmissionTimer(const QueuePairOptions& options) : options_(options) {}

  Time deadline() const { return deadline_; }
  void start(Time now) { deadline_ = now + timeout(); }
  void start_if_stopped(Time now) {
    if (deadline_ == kNever) start(now);
  }
  void stop() { deadline_ = kNever; }
  void back_off() { ++doublings_; }

  /// A packet that asks for an acknowledgement leaves for the first time: one is timed at once.
  void sent(Sequence sequence, Time now);
  /// Packets were sent again: an acknowledgement would not say which copy it means (Karn).
  void forget_probe() { probing_ = false; }
  /// Everything before `unacked` is acknowledged, and something of it newly.
  void progressed(Sequence unacked, Time now);

 private:
  Duration timeout() const;

  const QueuePairOptions& options_;
  Time deadline_ = kNever;
  int doublings_ = 0;
  RoundTrip round_trip_;
  bool probing_ = false;
  Sequence probe_ = 0;
  Time probe_sent_ = 0;
};

}  // namespace railweave::roce
