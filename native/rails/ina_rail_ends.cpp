// SPDX-License-Identifier: Apache-2.0
// The in-network rail's reaction when ranks call different things, or when a rank has left.
#include <algorithm>
#include <string>

#include "collectives/choose.hpp"
#include "core/timing.hpp"
#include "rails/ina_rail.hpp"

namespace railweave {

void InaRail::trees_failed(const Failure& failure, Time now) {
  const bool other_side_unknown = failure.kind == FailureKind::kMismatch && failure.rank < 0;
  if (!other_side_unknown) return failed(failure, now);
  if (has_failed() || showing_label()) return;
  const auto own = own_label({failure.op_index.value(), 0});
  // The rank has no label in a trial, or after an earlier part of the call was summed. In both cases all
  // ranks have made the same call.
  own ? show_label(*own, now) : blame_switch(now);
}

// Exchanges one byte with each peer, under this rank's label: the transport finds labels that differ. If all
// peers' labels are equal to this rank's, other ranks find the difference and announce it.
void InaRail::show_label(const MessageLabel& own, Time now) {
  show_until_ = now + timing::kShowTime;
  halt_trees(now);
  drop();
  control_.begin(own, now);
  for (const int peer : neighbours(control_.rank(), control_.world_size())) {
    if (has_failed()) return;
    control_.post_receive(peer, in_, now);
    control_.post_send(peer, out_, now);
  }
}

/// All ranks have made the same call, so the switch's message is wrong.
void InaRail::blame_switch(Time now) {
  failed({.kind = FailureKind::kSilent,
          .rank = -1,
          .message = "a switch has said that ranks call different things, but they do not: packets are "
                     "damaged on the way, or forged"},
         now);
}

// Messages that are posted while ranks exchange labels belong to no slice.
void InaRail::sent(int peer, Time now) {
  if (!has_failed() && !showing_label()) RingRail::sent(peer, now);
}

void InaRail::received(int peer, Time now) {
  if (!has_failed() && !showing_label()) RingRail::received(peer, now);
}

// A peer that leaves in good order has the results of all its calls. If this rank's results do not come
// within kLeftGrace, the peer has not made these calls.
void InaRail::left(int peer, Time now) {
  if (left_ < 0) left_ = peer;
  if (!slices_.empty() || has_slice()) begin_grace(now);
}

void InaRail::begin_grace(Time now) {
  if (grace_until_ != kNever) return;
  grace_until_ = now + timing::kLeftGrace;
  progress_at_grace_ = do_progress();
}

void InaRail::end_grace(Time now) {
  grace_until_ = kNever;
  if (slices_.empty() && !has_slice()) return;
  if (do_progress() != progress_at_grace_) return begin_grace(now);  // the peer still answers, or others do
  const std::string message = "rank " + std::to_string(left_) + " has closed its communicator";
  failed({.kind = FailureKind::kPeerLost, .rank = left_, .message = message}, now);
}

void InaRail::failed(const Failure& failure, Time now) {
  stop_waiting();
  RingRail::failed(failure, now);
}

}  // namespace railweave
