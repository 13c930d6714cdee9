// SPDX-License-Identifier: Apache-2.0
#include "collectives/ring.hpp"

#include <algorithm>

#include "collectives/reduce.hpp"

namespace railweave {

Ring::Ring(Transport& transport, const Slice& slice, std::size_t segment_bytes)
    : transport_(transport),
      slice_(slice),
      ranks_(static_cast<std::size_t>(transport.world_size())),
      rank_(static_cast<std::size_t>(transport.rank())),
      item_(item_size(slice.call.dtype)) {
  const std::size_t block = (slice.count + ranks_ - 1) / ranks_;
  const std::size_t segment = std::max<std::size_t>(1, segment_bytes / item_);
  segments_ = (block + segment - 1) / segment;
  segment_bytes_ = (block + segments_ - 1) / segments_ * item_;
  messages_ = 2 * (ranks_ - 1) * segments_;
  scratch_.resize(kWindow * segment_bytes_);
  for (std::size_t* cursor : {&send_posted_, &sent_}) skip_empty(*cursor, 0);
  for (std::size_t* cursor : {&receive_posted_, &received_, &reduced_}) skip_empty(*cursor, 1);
}

void Ring::advance(Time now) {
  for (bool moved = true; moved;) {
    moved = false;
    for (; may_receive(); moved = true) post_receive(now);
    for (; reduced_ < received_; moved = true) take();
    for (; may_send(); moved = true) post_send(now);
  }
}

// In step s a rank sends block (rank - s) and receives block (rank - s - 1): `hop` is 0 for what is sent, 1
// for what is received. That holds in both phases: after n-1 steps the block (rank + 1) is complete here, and
// goes round once more.
Ring::Range Ring::range(std::size_t message, std::size_t hop) const {
  const std::size_t block = (rank_ + 2 * ranks_ - step_of(message) - hop) % ranks_;
  const std::size_t begin = slice_.count * block / ranks_;
  const std::size_t length = slice_.count * (block + 1) / ranks_ - begin;
  const std::size_t segment = message % segments_;
  const std::size_t first = length * segment / segments_;
  return {.offset = begin + first, .count = length * (segment + 1) / segments_ - first};
}

void Ring::step(std::size_t& cursor, std::size_t hop) const {
  ++cursor;
  skip_empty(cursor, hop);
}

void Ring::skip_empty(std::size_t& cursor, std::size_t hop) const {
  while (cursor < messages_ && range(cursor, hop).count == 0) ++cursor;
}

// What a step sends is what the step before has received.
bool Ring::may_send() const {
  return send_posted_ < messages_ && (send_posted_ < segments_ || reduced_ > send_posted_ - segments_);
}

// The allgather receives into the place that this rank's reduce-scatter has sent from, n-1 steps before.
bool Ring::may_receive() const {
  if (receive_posted_ >= messages_ || receive_posted_ >= reduced_ + kWindow) return false;
  return !gathers(receive_posted_) || sent_ > receive_posted_ - (ranks_ - 1) * segments_;
}

std::byte* Ring::scratch(std::size_t message) { return scratch_.data() + message % kWindow * segment_bytes_; }

void Ring::post_receive(Time now) {
  const std::size_t message = receive_posted_;
  const auto [offset, count] = range(message, 1);
  std::byte* into = gathers(message) ? slice_.output + offset * item_ : scratch(message);
  step(receive_posted_, 1);
  transport_.post_receive(static_cast<int>((rank_ + ranks_ - 1) % ranks_), {into, count * item_}, now);
}

void Ring::post_send(Time now) {
  const std::size_t message = send_posted_;
  const auto [offset, count] = range(message, 0);
  const std::byte* from = (message < segments_ ? slice_.input : slice_.output) + offset * item_;
  step(send_posted_, 0);
  transport_.post_send(static_cast<int>((rank_ + 1) % ranks_), {from, count * item_}, now);
}

void Ring::take() {
  const std::size_t message = reduced_;
  step(reduced_, 1);
  if (gathers(message)) return;
  const auto [offset, count] = range(message, 1);
  std::byte* into = slice_.output + offset * item_;
  reduce(slice_.call.dtype, slice_.call.op, into, scratch(message), slice_.input + offset * item_, count);
  const bool complete = step_of(message) + 2 == ranks_;
  if (complete) finish(slice_.call.dtype, slice_.call.op, into, count, slice_.world_size);
}

}  // namespace railweave
