// SPDX-License-Identifier: Apache-2.0
#include "rails/ring_rail.hpp"

#include <algorithm>

namespace railweave {

RingRail::RingRail(std::unique_ptr<Transport> transport, RailListener& listener, RingRailOptions options)
    : transport_(std::move(transport)), listener_(listener), options_(options) {
  transport_->set_listener(this);
}

void RingRail::start(const Slice& slice, Time now) {
  if (failed_) return;
  if (slices_.empty()) busy_since_ = now;
  const bool same_call = last_ && last_->op_index == slice.call.op_index;
  const auto part = static_cast<std::uint16_t>(same_call ? last_->part + 1 : 0);
  last_ = {.op_index = slice.call.op_index, .part = part};
  slices_.push_back(
      {.slice = slice, .label = {.call = slice.call, .slice_count = slice.count, .part = part}});
  advance(now);
}

void RingRail::sent(int peer, Time now) {
  ++progress_;
  const auto awaits = [peer](const auto& machine) { return machine->awaits_sent(peer); };
  const auto owner = std::find_if(retired_.begin(), retired_.end(), awaits);
  if (owner == retired_.end()) {
    machine_->note_sent(peer);
    return advance(now);
  }
  (*owner)->note_sent(peer);
  if ((*owner)->finished()) retired_.erase(owner);
}

void RingRail::received(int peer, Time now) {
  ++progress_;
  machine_->note_received(peer);
  advance(now);
}

std::optional<MessageLabel> RingRail::pending_label(const SliceKey& key) const {
  const auto found = std::find_if(slices_.begin(), slices_.end(),
                                  [&](const Pending& pending) { return key_of(pending.label) == key; });
  if (found != slices_.end()) return found->label;
  const auto call = key.part == 0 ? listener_.pending_call(key.op_index) : std::nullopt;
  if (!call) return std::nullopt;
  return MessageLabel{.call = *call, .slice_count = 0};
}

void RingRail::failed(const Failure& failure, Time now) {
  if (failed_) return;
  failed_ = true;
  listener_.rail_failed(failure, now);
}

// Completions may come from inside the machine's own posts: those are noted at once, and acted upon by the
// outer call.
void RingRail::advance(Time now) {
  again_ = true;
  if (advancing_) return;
  advancing_ = true;
  while (again_ && !failed_ && !slices_.empty() && transport_->ready()) {
    again_ = false;
    if (!machine_) begin(now);
    machine_->advance(now);
    if (!failed_ && machine_->ready()) finish(now);
  }
  advancing_ = false;
  if (slices_.empty()) machine_.reset();  // they may have been dropped in the meantime
}

void RingRail::begin(Time now) {
  transport_->begin(slices_.front().label, now);
  machine_ = choose_algorithm(*transport_, slices_.front().slice, options_);
}

void RingRail::finish(Time now) {
  const Slice slice = slices_.front().slice;
  slices_.pop_front();
  if (!machine_->finished()) retired_.push_back(std::move(machine_));
  machine_.reset();
  again_ = true;
  ++stats_.slices;
  stats_.payload_bytes += tensor_bytes(slice.call, slice.count, slice.world_size);
  if (slices_.empty()) stats_.busy += now - busy_since_;
  listener_.slice_done(slice.id, now);
}

void RingRail::abort() {
  transport_->abort();
  drop();
}

void RingRail::halt(Time now) {
  if (!slices_.empty()) stats_.busy += now - busy_since_;
  transport_->halt(now);
  drop();
}

void RingRail::drop() {
  failed_ = true;
  slices_.clear();
  retired_.clear();
  if (!advancing_) machine_.reset();  // else `advance` stands on it
}

void RingRail::restart(const Restart& restart, Time now) {
  transport_->restart(restart.incarnation, now);
  failed_ = false;
  last_.reset();
}

RailStats RingRail::stats() const {
  RailStats stats = transport_->stats();
  stats.slices = stats_.slices;
  stats.payload_bytes = stats_.payload_bytes;
  stats.busy = stats_.busy + (slices_.empty() ? 0 : EventLoop::now() - busy_since_);
  return stats;
}

}  // namespace railweave
