// SPDX-License-Identifier: Apache-2.0
#include "rails/guarded_rail.hpp"

#include <algorithm>
#include <utility>

#include "collectives/choose.hpp"
#include "core/timing.hpp"

namespace railweave {

void GuardedRail::adopt(std::unique_ptr<Rail> rail, std::unique_ptr<Transport> control,
                        TransportListener* user) {
  rail_ = std::move(rail);
  control_ = std::move(control);
  user_ = user;
  control_->set_listener(this);
}

void GuardedRail::start(const Slice& slice, Time now) {
  if (ended_ || show_until_ != kNever) return;
  ++slices_;
  // A peer that leaves in good order has the results of all its calls. If this rank's do not come in so long,
  // they are of calls that the peer has not made.
  if (left_ >= 0) begin_grace(now);
  rail_->start(slice, now);
}

void GuardedRail::slice_done(std::uint64_t id, Time now) {
  if (--slices_ == 0) grace_until_ = kNever;
  listener_.slice_done(id, now);
}

void GuardedRail::rail_failed(const Failure& failure, Time now) {
  const bool other_side_unknown = failure.kind == FailureKind::kMismatch && failure.rank < 0;
  const auto own =
      other_side_unknown && !ended_ ? pending_label({failure.op_index.value(), 0}) : std::nullopt;
  // The rank has no label in a trial, and none after an earlier part of the call was summed. In both cases
  // all ranks have made the same call.
  if (!own) return other_side_unknown ? doubt(now) : failed(failure, now);
  if (show_until_ == kNever) show_label(*own, now);
}

// One byte to and from each peer, under this rank's label: the transport finds labels that differ. If all are
// like this rank's, others have found it, and it comes round.
void GuardedRail::show_label(const MessageLabel& own, Time now) {
  show_until_ = now + timing::kShowTime;
  rail_->halt(now);
  control_->begin(own, now);
  for (const int peer : neighbours(control_->rank(), control_->world_size())) {
    if (ended_) return;
    control_->post_receive(peer, in_, now);
    control_->post_send(peer, out_, now);
  }
}

// While labels are shown, the rail within has let go of its messages.
void GuardedRail::sent(int peer, Time now) {
  if (user_ && !ended_ && show_until_ == kNever) user_->sent(peer, now);
}

void GuardedRail::received(int peer, Time now) {
  if (user_ && !ended_ && show_until_ == kNever) user_->received(peer, now);
}

void GuardedRail::joined(Time now) {
  if (user_ && !ended_) user_->joined(now);
}

void GuardedRail::left(int peer, Time now) {
  if (left_ < 0) left_ = peer;
  if (slices_ > 0) begin_grace(now);
}

void GuardedRail::begin_grace(Time now) {
  if (grace_until_ != kNever) return;
  grace_until_ = now + timing::kLeftGrace;
  progress_ = rail_->progress();
}

void GuardedRail::failed(const Failure& failure, Time now) {
  show_until_ = grace_until_ = kNever;
  if (!std::exchange(ended_, true)) listener_.rail_failed(failure, now);
}

Time GuardedRail::deadline() const {
  return std::min({rail_->deadline(), control_->deadline(), show_until_, grace_until_});
}

void GuardedRail::expire(Time now) {
  if (rail_->deadline() <= now) rail_->expire(now);
  if (control_->deadline() <= now) control_->expire(now);
  if (show_until_ <= now) doubt(now);
  if (grace_until_ <= now && rail_->progress() != progress_) {
    grace_until_ = kNever;  // the peer still answers, or others do
    begin_grace(now);
  }
  if (grace_until_ <= now) {
    const std::string message = "rank " + std::to_string(left_) + " has closed its communicator";
    failed({.kind = FailureKind::kPeerLost, .rank = left_, .message = message}, now);
  }
}

/// All ranks have made the same call, so the switch's message is wrong.
void GuardedRail::doubt(Time now) {
  failed({.kind = FailureKind::kSilent,
          .rank = -1,
          .message = "a switch has said that ranks call different things, but they do not: packets are "
                     "damaged on the way, or forged"},
         now);
}

void GuardedRail::abort() {
  rail_->abort();
  control_->abort();
  stop();
}

void GuardedRail::halt(Time now) {
  rail_->halt(now);
  control_->halt(now);
  stop();
}

void GuardedRail::stop() {
  ended_ = true;
  show_until_ = grace_until_ = kNever;
  slices_ = 0;
}

void GuardedRail::restart(const Restart& restart, Time now) {
  try {
    rail_->restart(restart, now);
    control_->restart(restart.incarnation, now);
  } catch (...) {
    halt(now);  // both or none
    throw;
  }
  ended_ = false;
  left_ = -1;
}

void GuardedRail::close(Time now) {
  rail_->close(now);
  control_->close(now);
}

RailStats GuardedRail::stats() const {
  RailStats stats = rail_->stats();
  const RailStats control = control_->stats();
  stats.bytes_sent += control.bytes_sent;
  stats.sent += control.sent;
  if (control.sent.payload == 0) stats.sent.control += control.bytes_sent - control.sent.sum();
  stats.bytes_received += control.bytes_received;
  stats.packets_sent += control.packets_sent;
  stats.packets_received += control.packets_received;
  stats.malformed += control.malformed;
  return stats;
}

}  // namespace railweave
