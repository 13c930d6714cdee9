// SPDX-License-Identifier: Apache-2.0
// The sending half of a queue pair: cuts work requests into packets, keeps a window of them outstanding, and
// goes back to the first unacknowledged one when something is lost (go-back-N, the only way that RC knows).
#pragma once

#include <deque>
#include <vector>

#include "core/longest_lately.hpp"
#include "core/round_trip.hpp"
#include "core/timing.hpp"
#include "roce/packet.hpp"
#include "roce/work.hpp"

namespace railweave::roce {

/// When silence means loss: round-trip estimate and back-off after RFC 6298, with a floor fit for a local
/// network.
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
  /// An answer came so long after the last one, and nothing had been lost.
  void answered_late(Duration gap, Time now) { lateness_.add(std::min(gap, options_.max_timeout), now); }
  /// The longest of these gaps of the last seconds.
  Duration lateness(Time now) const { return lateness_.get(now); }

  /// A packet that asks for an acknowledgement leaves for the first time: one is timed at once.
  void sent(Sequence sequence, Time now);
  /// Packets were sent again: an acknowledgement would not say which copy it means (Karn).
  void forget_probe() { probing_ = false; }
  /// Everything before `unacked` is acknowledged, and something of it newly.
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
  /// The next packet begins a message, and may leave now.
  bool begins_message() const { return may_send() && next_ == queue_[cursor_].first; }
  /// Fills the next request packet; false if there is none, or it may not leave yet.
  bool transmit(Packet& packet, Time now);
  void on_acknowledge(const Packet& packet, Time now);

  Time deadline() const { return std::min(hold_until_, timer_.deadline()); }
  void expire(Time now);

  bool failed() const { return failed_; }
  /// Ends the oldest request with `status` and all others as flushed; nothing is sent any more.
  void fail(Status status);

  std::size_t release_buffers();

  std::size_t queued() const { return queue_.size(); }
  /// All that was ever sent is acknowledged.
  bool idle() const { return unacked_ == sent_end_; }
  std::int64_t window() const { return window_; }

 private:
  struct Pending {
    WorkRequest request;
    Sequence first;
    Sequence end;                   // one beyond its last packet
    std::vector<std::byte> copy{};  // what `request.local` shows once its owner wants it back
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
  Sequence shrunk_until_;              // losses below belong to the congestion already answered
  Time answered_at_ = 0;               // or when the first packet left of those that are outstanding
  std::int64_t window_before_ = 0;     // the timer shrank it, and no answer has come since
  Sequence presumed_at_ = -1;          // `unacked_` when a hole in the answers was last taken for a loss
  int retries_ = 0, rnr_retries_ = 0;  // since the last progress
  Time hold_until_ = kNever;           // told to wait by an RNR NAK
  bool failed_ = false;
};

}  // namespace railweave::roce
