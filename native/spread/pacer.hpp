// SPDX-License-Identifier: Apache-2.0
// When the next packet may leave. The rate is the link's, or is found out if it is not known.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/headers.hpp"
#include "core/time.hpp"

namespace railweave::spread {

/// A process that wakes up late makes up for at most kBurst, and never for time before its turn, so that
/// queues are short. It sleeps for kQuantum, so that it need not wake up for each packet. Packets to all
/// ranks have a share of the links that they cross. The host's own link bounds all that it sends.
class Pacer {
 public:
  static constexpr Duration kBurst = 4 * kMillisecond;
  static constexpr Duration kQuantum = kMillisecond / 4;

  /// The rate of the link; 0: unknown.
  explicit Pacer(std::uint64_t rate_bps)
      : known_(rate_bps != 0), rate_(known_ ? kPart * static_cast<double>(rate_bps) : kFirst) {}

  /// When the next packet may leave for one rank, and for all.
  Time next() const { return link_; }
  Time next_shared() const { return std::max(link_, share_); }
  /// Ranks that begin together take turns. This rank begins after `before` datagrams of others.
  void begin(std::size_t bytes, std::uint32_t before, Time now) {
    share_ = std::max(share_, now + time_of(bytes, before));
  }
  /// This rank's turn begins. It makes up for no time before.
  void take_turn(Time now) {
    link_ = std::max(link_, now);
    share_ = std::max(share_, now);
  }
  /// A datagram of `bytes` leaves.
  void pay(std::size_t bytes, Time now) { pay(link_, time_of(bytes, 1), now); }
  /// A datagram leaves to all, while `senders` ranks send. Reductions on the same links count as one more
  /// sender. Their acknowledgements count as a part of each datagram.
  void pay_shared(std::size_t bytes, std::uint32_t senders, bool reducing, Time now) {
    pay(bytes, now);
    pay(share_, time_of(bytes, reducing ? senders * kAcknowledged + 1 : senders), now);
  }
  /// A peer lacks chunks that were sent.
  void lost(Time now) {
    if (known_ || now < halved_at_ + kPatience) return;
    halved_at_ = now;
    rate_ = std::max(rate_ / 2, kLeast);
  }
  double rate_bps() const { return rate_; }

 private:
  Duration time_of(std::size_t bytes, double times) const {
    const double bits = 8.0 * static_cast<double>(bytes + kUdpHeaders) * times;
    return static_cast<Duration>(bits * kSecond / rate_);
  }

  void pay(Time& paid_until, Duration cost, Time now) {
    paid_until = std::max(paid_until, now - kBurst) + cost;
    if (known_) return;
    const double milliseconds = static_cast<double>(std::min(cost, kMillisecond)) / kMillisecond;
    rate_ = std::min(rate_ * (1 + kGrowth * milliseconds), kMost);
  }

  // A result without lanes has 5 % of the bytes of a packet to all; the rest is slack, so that queues drain.
  static constexpr double kAcknowledged = 1 + 1.0 / 12;
  static constexpr double kPart = 0.995;  // the rest is for heartbeats, FETCH and control
  // For an unknown rate: bits per second, the growth in a millisecond of sending, and how long receivers ask
  // for one loss.
  static constexpr double kFirst = 1e9, kLeast = 1e7, kMost = 1e10, kGrowth = 0.02;
  static constexpr Duration kPatience = 10 * kMillisecond;

  bool known_;
  double rate_;
  Time link_ = 0;
  Time share_ = 0;
  Time halved_at_ = -kSecond;
};

}  // namespace railweave::spread
