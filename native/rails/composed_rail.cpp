// SPDX-License-Identifier: Apache-2.0
#include "rails/composed_rail.hpp"

#include <utility>

namespace railweave {
namespace {

/// A transport whose owner opens, halts, restarts and closes it, and passes on what it tells.
class Lent final : public Transport {
 public:
  Lent(Transport& transport, TransportListener*& told) : transport_(transport), told_(told) {}

  std::string_view kind() const override { return transport_.kind(); }
  int world_size() const override { return transport_.world_size(); }
  int rank() const override { return transport_.rank(); }
  void set_listener(TransportListener* listener) override { told_ = listener; }
  void begin(const MessageLabel& label, Time now) override { transport_.begin(label, now); }
  void pass_over(const CallDescription& call, Time now) override { transport_.pass_over(call, now); }
  void post_send(int peer, Bytes data, Time now) override { transport_.post_send(peer, data, now); }
  void post_receive(int peer, MutableBytes into, Time now) override {
    transport_.post_receive(peer, into, now);
  }
  bool ready() const override { return transport_.ready(); }
  void announce(const Failure&, Time) override {}
  void abort() override {}
  void halt(Time) override {}
  void restart(std::uint32_t, Time) override {}
  RailStats stats() const override { return {}; }

 private:
  Transport& transport_;
  TransportListener*& told_;
};

}  // namespace

void ComposedRail::adopt(std::unique_ptr<InaRail> rack, Transport& transport, std::uint64_t rate_bps) {
  rack_ = std::move(rack);
  hosts_ = std::make_unique<RingRail>(
      std::make_unique<Lent>(transport, told_), listener_, RingRailOptions{.rate_bps = rate_bps},
      [this](Transport& lent, const Slice& slice) { return choose(lent, slice); });
}

void ComposedRail::compose(MemberRing ring, std::uint32_t lanes) {
  options_.lanes = lanes;
  options_.start_in_rack = [this](const Slice& slice, Time now) { rack_->start(slice, now); };
  ring_ = std::move(ring);
  rack_->yield();  // racks wait for the ring, and sum ahead meanwhile
}

std::unique_ptr<Algorithm> ComposedRail::choose(Transport& transport, const Slice& slice) {
  if (slice.call.collective != Collective::kAllReduce || !ina::carries(slice.call)) return nullptr;
  auto made = std::make_unique<ina::ComposedAllReduce>(transport, *ring_, slice, options_, counts_);
  composed_ = made.get();
  return made;
}

void ComposedRail::start(const Slice& slice, Time now) {
  if (!ring_) return rack_->start(slice, now);
  hosts_->start(slice, now);
}

void ComposedRail::slice_done(std::uint64_t id, Time now) {
  if (!ring_) return listener_.slice_done(id, now);
  composed_->rack_done();
  hosts_->advance(now);
}

void ComposedRail::pass_over(const CallDescription& call, Time now) {
  if (ring_) hosts_->pass_over(call, now);
}

void ComposedRail::abort() {
  rack_->abort();
  hosts_->abort();
}

void ComposedRail::halt(Time now) {
  rack_->halt(now);
  hosts_->halt(now);
  halted_ = true;
}

void ComposedRail::restart(const Restart& restart, Time now) {
  if (in_trees()) rack_->restart(restart, now);
  hosts_->restart(restart, now);
  halted_ = false;
}

std::vector<std::uint64_t> ComposedRail::next_chunks() const {
  return in_trees() ? rack_->next_chunks() : std::vector<std::uint64_t>{0};
}

RailStats ComposedRail::stats() const {
  RailStats stats = rack_->stats();
  if (!ring_) return stats;
  const RailStats hosts = hosts_->stats();
  stats.slices = hosts.slices;
  stats.payload_bytes = hosts.payload_bytes;
  stats.busy = hosts.busy;
  stats.rings = counts_.rings;
  stats.ring_messages = counts_.messages;
  return stats;
}

std::uint64_t ComposedRail::progress() const { return rack_->progress() + hosts_->progress(); }

}  // namespace railweave
