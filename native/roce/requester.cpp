// SPDX-License-Identifier: Apache-2.0
#include "roce/requester.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace railweave::roce {
namespace {

constexpr std::size_t kMaxMessage = std::size_t{1} << 31;
constexpr Duration kMostLate = 50 * kMillisecond;  // longest delay of a peer that widens the window
constexpr std::int64_t kAckEvery = 16;  // packets from one request for an acknowledgement to the next

CompletionKind kind_of(const WorkRequest& request) {
  return request.operation == Operation::kSend ? CompletionKind::kSend : CompletionKind::kWrite;
}

}  // namespace

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

Duration RetransmissionTimer::timeout(Time now) const {
  const Duration base =
      round_trip_.measured()
          ? std::max(options_.min_timeout, round_trip_.smoothed() + 4 * round_trip_.variation())
          : options_.first_timeout;
  const int doublings = std::min(doublings_, 16);
  return std::min(options_.max_timeout, std::max(base << doublings, lateness(now)));
}

Requester::Requester(const QueuePairOptions& options, Completions& completions, QueuePairStats& stats)
    : options_(options),
      completions_(completions),
      stats_(stats),
      timer_(options),
      // One circle (2^24) up, so that the number before the first one is no special case.
      unacked_(2 * kPsnHalf + options.send_psn),
      next_(unacked_),
      sent_end_(unacked_),
      asked_end_(unacked_),
      assigned_end_(unacked_),
      window_(options.window),
      shrunk_until_(unacked_) {}

void Requester::post(const WorkRequest& request) {
  if (request.local.size() > kMaxMessage) throw std::length_error("an RDMA message has at most 2^31 bytes");
  if (failed_) {
    completions_.push_back({request.id, kind_of(request), Status::kFlushed, 0, {}});
    return;
  }
  const Sequence end = assigned_end_ + packets_for(request.local.size(), options_.path_mtu);
  queue_.push_back({request, assigned_end_, end, {}});
  assigned_end_ = end;
}

bool Requester::may_send() const {
  return !failed_ && hold_until_ == kNever && cursor_ < queue_.size() && next_ - unacked_ < window_;
}

bool Requester::transmit(Packet& packet, Time now) {
  if (!may_send()) return false;
  if (next_ == unacked_ && next_ == sent_end_) answered_at_ = now;
  const Pending& pending = queue_[cursor_];
  const bool again = next_ < sent_end_;
  packet = Packet{};
  packet.qpn = options_.peer_qpn;
  packet.psn = psn_of(next_);
  fill_message_part(pending, packet);
  if (packet.ack_request && !again) timer_.sent(next_, now);
  ++next_;
  if (packet.ack_request) asked_end_ = next_;
  if (next_ == pending.end) ++cursor_;
  sent_end_ = std::max(sent_end_, next_);
  if (again) {
    ++stats_.retransmissions;
    stats_.resent_bytes += written_size(packet);
  } else {
    stats_.payload_bytes += packet.payload.size();
  }
  timer_.start_if_stopped(now);
  return true;
}

void Requester::fill_message_part(const Pending& pending, Packet& packet) const {
  const WorkRequest& request = pending.request;
  const Sequence index = next_ - pending.first;
  const bool starts = index == 0, ends = next_ + 1 == pending.end;
  packet.opcode = opcode_for(request.operation, starts, ends, ends && request.immediate.has_value());
  packet.payload = payload_of(request.local, index, options_.path_mtu);
  packet.reth = {request.remote_address, request.rkey, static_cast<std::uint32_t>(request.local.size())};
  packet.immediate = request.immediate.value_or(0);
  const bool awaited = request.operation == Operation::kSend && !request.quiet;
  packet.solicited = ends && (awaited || request.immediate.has_value());
  // The window's last packet does not ask. Otherwise the packets that an ACK releases would always ask for
  // another ACK, and bursts would become smaller and smaller.
  const std::int64_t every = std::clamp(window_ / 4, std::int64_t{1}, kAckEvery);
  packet.ack_request = ends || next_ + 1 - asked_end_ >= every;
}

void Requester::on_acknowledge(const Packet& packet, Time now) {
  const Sequence sequence = sequence_near(unacked_, packet.psn);
  if (sequence < unacked_ || sequence >= sent_end_) {
    ++stats_.duplicates;
    return;
  }
  // A NAK acknowledges everything before the packet that it names.
  const Sequence end = packet.aeth.kind == AckKind::kAck ? sequence + 1 : sequence;
  const Sequence before = unacked_;
  while (unacked_ < end) {
    unacked_ = std::min(end, queue_.front().end);
    if (unacked_ == queue_.front().end) complete_front(Status::kSuccess);
  }
  progressed(before, now, packet.aeth.kind == AckKind::kNak);
  if (packet.aeth.kind != AckKind::kAck) on_nak(packet.aeth, now);
}

void Requester::complete_front(Status status) {
  const Pending& front = queue_.front();
  const auto size = static_cast<std::uint32_t>(front.request.local.size());
  completions_.push_back({front.request.id, kind_of(front.request), status, size, {}});
  if (cursor_ > 0) --cursor_;
  queue_.pop_front();
}

/// `loss`: the answer also reports a loss.
void Requester::progressed(Sequence before, Time now, bool loss) {
  if (unacked_ == before) return;
  const Duration gap = now - std::exchange(answered_at_, now);
  const std::int64_t window_before = std::exchange(window_before_, 0);
  const bool spurious = next_ < unacked_;  // packets from before the go-back are acknowledged
  if (spurious) {
    next_ = asked_end_ = unacked_;
    cursor_ = 0;
    window_ = std::max(window_, loss ? window_before / 2 : window_before);
  }
  // On a shared link, an answer may take twice the window's time, due to the other connection's queue. Such a
  // peer is not late.
  const Duration late = timer_.lateness(now);
  const bool absent = gap > 2 * options_.window_time && (spurious || (late > 0 && gap > late / 2));
  if (!loss && absent) timer_.answered_late(gap, now);
  retries_ = rnr_retries_ = 0;
  timer_.progressed(unacked_, now);
  if (next_ == unacked_) {
    timer_.stop();
  } else {
    timer_.start(now);
  }
  grow_window(unacked_ - before, now);
}

// While the peer often runs late, the window grows beyond its usual size at once. A window smaller than the
// link's capacity in that time would leave the link idle.
void Requester::grow_window(Sequence acknowledged, Time now) {
  std::int64_t most = options_.window;
  if (options_.window_time > 0) {
    const Duration late = std::min(timer_.lateness(now), kMostLate);
    most = std::clamp(most * (late + options_.window_time) / options_.window_time, most,
                      std::max(most, options_.most_window));
  }
  if (window_ >= options_.window) {
    window_ = std::min(window_ + acknowledged, most);
    return;
  }
  window_credit_ += acknowledged;
  if (window_credit_ < window_) return;
  ++window_;
  window_credit_ = 0;
}

void Requester::on_nak(const Aeth& aeth, Time now) {
  ++stats_.naks_received;
  if (aeth.kind == AckKind::kReceiverNotReady) {
    if (options_.rnr_retries < 7 && ++rnr_retries_ > options_.rnr_retries)
      return fail(Status::kRnrRetriesExceeded);
    go_back();
    hold_until_ = now + rnr_delay(aeth.value);
    return timer_.stop();
  }
  switch (static_cast<NakCode>(aeth.value)) {
    case NakCode::kSequenceError:
      return options_.summed ? presume_lost(now) : lost(now);
    case NakCode::kRemoteAccessError:
      return fail(Status::kRemoteAccessError);
    case NakCode::kInvalidRequest:
    case NakCode::kInvalidReadRequest:
      return fail(Status::kRemoteInvalidRequest);
    default:
      return fail(Status::kRemoteOperationalError);
  }
}

void Requester::go_back() {
  next_ = asked_end_ = unacked_;
  cursor_ = 0;
  timer_.forget_probe();
}

void Requester::lost(Time now) {
  if (++retries_ > options_.retries) return fail(Status::kRetriesExceeded);
  shrink_window(window_ / 2);
  go_back();
  timer_.start(now);
}

/// Counts evidence of a loss once, because packets that are still on their way show the same gap again.
void Requester::presume_lost(Time now) {
  if (presumed_at_ == unacked_) return;
  presumed_at_ = unacked_;
  lost(now);
}

void Requester::shrink_window(std::int64_t to) {
  if (unacked_ < shrunk_until_) return;
  window_ = std::max(options_.min_window, to);
  window_credit_ = 0;
  shrunk_until_ = sent_end_;
}

void Requester::expire(Time now) {
  if (now >= hold_until_) hold_until_ = kNever;
  if (now < timer_.deadline()) return;
  timer_.stop();
  if (failed_ || next_ == unacked_) return;
  ++stats_.timeouts;
  timer_.back_off();
  if (window_before_ == 0) window_before_ = window_;
  shrink_window(options_.min_window);
  lost(now);
}

std::size_t Requester::release_buffers() {
  std::size_t forgotten = 0;
  while (!queue_.empty() && queue_.back().first >= sent_end_) {
    if (queue_.back().request.operation == Operation::kSend) ++forgotten;
    assigned_end_ = queue_.back().first;
    queue_.pop_back();
  }
  for (Pending& pending : queue_) {
    pending.copy.assign(pending.request.local.begin(), pending.request.local.end());
    pending.request.local = pending.copy;
  }
  return forgotten;
}

void Requester::fail(Status status) {
  failed_ = true;
  timer_.stop();
  hold_until_ = kNever;
  while (!queue_.empty()) {
    complete_front(status);
    status = Status::kFlushed;
  }
  next_ = asked_end_ = sent_end_ = assigned_end_ = unacked_;
  cursor_ = 0;
}

}  // namespace railweave::roce
