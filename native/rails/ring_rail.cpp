// SPDX-License-Identifier: Apache-2.0
#include "rails/ring_rail.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/scoped_flag.hpp"

namespace railweave {

RingRail::RingRail(EventLoop* loop, std::unique_ptr<Transport> transport, RailListener& listener,
                   RingRailOptions options, SpecialAlgorithm special)
    : Rail(loop, listener),
      transport_(std::move(transport)),
      options_(options),
      special_(std::move(special)) {
  transport_->set_listener(this);
}

void RingRail::do_start(const Slice& slice, Time now) {
  if (failed_) return;
  if (slice_) throw std::logic_error("a rail of a ring takes one slice at a time");
  busy_since_ = now;
  slice_ = slice;
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

void RingRail::moved(Time now) {
  ++progress_;
  advance(now);
}

void RingRail::failed(const Failure& failure, Time now) {
  if (failed_) return;
  failed_ = true;
  listener_.rail_failed(failure, now);
}

// The machine's own posts may cause completions. Inner calls only note them, and the outer call handles them.
void RingRail::advance(Time now) {
  again_ = true;
  if (advancing_) return;
  {
    const ScopedFlag advancing(advancing_);
    while (again_ && !failed_ && slice_ && transport_->ready()) {
      again_ = false;
      if (!machine_) begin(now);
      machine_->advance(now);
      if (!failed_ && machine_->ready()) finish(now);
    }
  }
  if (!slice_) machine_.reset();  // the slice may have been dropped in the loop
}

void RingRail::begin(Time now) {
  transport_->begin(label_of(*slice_), now);
  if (special_) machine_ = special_(*transport_, *slice_);
  if (!machine_) machine_ = choose_algorithm(*transport_, *slice_, options_);
}

void RingRail::finish(Time now) {
  const Slice slice = *std::exchange(slice_, std::nullopt);
  if (!machine_->finished()) retired_.push_back(std::move(machine_));
  machine_.reset();
  ++stats_.slices;
  stats_.payload_bytes += tensor_bytes(slice.call, slice.count, slice.world_size);
  stats_.busy += now - busy_since_;
  listener_.slice_done(slice.id, now);
}

void RingRail::do_abort() {
  transport_->abort();
  failed_ = true;
  drop();
}

void RingRail::do_halt(Time now) {
  if (slice_) stats_.busy += now - busy_since_;
  transport_->halt(now);
  failed_ = true;
  drop();
}

void RingRail::drop() {
  slice_.reset();
  retired_.clear();
  if (!advancing_) machine_.reset();  // else `advance` is running its code
}

void RingRail::do_restart(const Restart& restart, Time now) {
  transport_->set_positions(restart.bases);
  transport_->restart(restart.incarnation, now);
  failed_ = false;
}

RailStats RingRail::do_stats() const {
  RailStats stats = transport_->stats();
  stats.slices = stats_.slices;
  stats.payload_bytes = stats_.payload_bytes;
  stats.busy = stats_.busy + (slice_ ? EventLoop::now() - busy_since_ : 0);
  return stats;
}

}  // namespace railweave
