// SPDX-License-Identifier: Apache-2.0
// The sending half of a queue pair. It cuts work requests into packets and keeps a window of packets in
// flight. After a loss it goes back to the first unacknowledged packet (go-back-N, the only scheme that RC
// has).
#pragma once

#include <deque>
#include <vector>

#include "core/longest_lately.hpp"
#include "core/round_trip.hpp"
#include "core/timing.hpp"
#include "roce/packet.hpp"
#include "roce/work.hpp"

namespace railweave::roce {

/// Decides when silence means loss: round-trip estimate and back-off of RFC 6298, with a minimum that suits a
/// local network.
class RetransmissionTimer {
 public:
  explicit RetransmissionTimer(const QueuePairOptions& options) : options_(options) {}

  Time deadline() const { return deadline_; }
  void start(Time now) { deadline_ = now + timeout(now); }
  void start_if_stopped(Time now) {
    if (deadline_ == kNever) start(now);
  }
  void stop() { deadline_ = kNever; }
  void back_off() { ++doublings_; }
  /// An answer came `gap` after the last one, and nothing had been lost.
  void answered_late(Duration gap, Time now) { lateness_.add(std::min(gap, options_.max_timeout), now); }
  /// The longest of these gaps in the last timing::kMemory.
  Duration lateness(Time now) const { return lateness_.get(now); }

  /// A packet that asks for an ACK leaves for the first time. Only one packet is timed at a time.
  void sent(Sequence sequence, Time now);
  /// Packets were sent again. An ACK would not say which copy it answers (Karn's algorithm).
  void forget_probe() { probing_ = false; }
  /// Everything before `unacked` is acknowledged, and some packets only now.
  void progressed(Sequence unacked, Time now);

 private:
  Duration timeout(Time now) const;

  const QueuePairOptions& options_;
  Time deadline_ = kNever;
  int doublings_ = 0;
  RoundTrip round_trip_;
  bool probing_ = false;
  Sequence probe_ = 0;
  Time probe_sent_ = 0;
  LongestLately lateness_{timing::kMemory};
};

class Requester {
 public:
  Requester(const QueuePairOptions& options, Completions& completions, QueuePairStats& stats);

  void post(const WorkRequest& request);
  /// True if the next packet begins a message and may leave now.
  bool begins_message() const { return may_send() && next_ == queue_[cursor_].first; }
  /// Fills in the next request packet. Returns false if no packet may leave now.
  bool transmit(Packet& packet, Time now);
  void on_acknowledge(const Packet& packet, Time now);

  Time deadline() const { return std::min(hold_until_, timer_.deadline()); }
  void expire(Time now);

  bool failed() const { return failed_; }
  /// Ends the oldest request with `status` and all others as flushed; nothing is sent any more.
  void fail(Status status);

  std::size_t release_buffers();

  std::size_t queued() const { return queue_.size(); }
  /// True if all packets sent so far are acknowledged.
  bool idle() const { return unacked_ == sent_end_; }
  std::int64_t window() const { return window_; }

 private:
  struct Pending {
    WorkRequest request;
    Sequence first;
    Sequence end;                   // one beyond its last packet
    std::vector<std::byte> copy{};  // `request.local` points here after `release_buffers`
  };

  bool may_send() const;
  void fill_message_part(const Pending& pending, Packet& packet) const;
  void progressed(Sequence before, Time now, bool loss);
  void complete_front(Status status);
  void go_back();
  void lost(Time now);
  void presume_lost(Time now);
  void shrink_window(std::int64_t to);
  void grow_window(Sequence acknowledged, Time now);
  void on_nak(const Aeth& aeth, Time now);

  const QueuePairOptions& options_;
  Completions& completions_;
  QueuePairStats& stats_;
  RetransmissionTimer timer_;
  std::deque<Pending> queue_;
  std::size_t cursor_ = 0;  // index of the request that `next_` belongs to
  Sequence unacked_;        // oldest not acknowledged; inside queue_.front() if there is one
  Sequence next_;           // to be sent next
  Sequence sent_end_;       // one beyond the newest ever sent
  Sequence asked_end_;      // one beyond the newest that asked for an acknowledgement, since it went back
  Sequence assigned_end_;   // one beyond the newest that a request owns
  std::int64_t window_;
  std::int64_t window_credit_ = 0;     // acknowledged packets on the way to a larger window
  Sequence shrunk_until_;              // losses below belong to congestion already handled
  Time answered_at_ = 0;               // last progress, or when the first outstanding packet left
  std::int64_t window_before_ = 0;     // before the timer shrank it; 0: an answer has come
  Sequence presumed_at_ = -1;          // `unacked_` when a gap was last taken for a loss
  int retries_ = 0, rnr_retries_ = 0;  // since the last progress
  Time hold_until_ = kNever;           // told to wait by an RNR NAK
  bool failed_ = false;
};

}  // namespace railweave::roce
