// SPDX-License-Identifier: Apache-2.0
// The in-network rail on whatever the fabric allows: trees of all ranks, or a ring of racks and single ranks.
#pragma once

#include <memory>
#include <optional>

#include "ina/composed.hpp"
#include "rails/ina_rail.hpp"
#include "rails/ring_rail.hpp"

namespace railweave {

/// Without a ring it is the InaRail within. With one, this rank's rack, if it is in one, is the InaRail's
/// only tree, and the ring's messages go over the transport beside it. What racks cannot help with (other
/// collectives, products, other types) the hosts do themselves over that transport, among all ranks.
class ComposedRail final : public Rail, private RailListener {
 public:
  explicit ComposedRail(RailListener& listener) : listener_(listener) {}

  /// Where the rail within is to report.
  RailListener& rack_listener() { return *this; }
  /// Once, before anything else. The transport is the owner's: it opens, halts, restarts and closes it, and
  /// tells `transport_listener` what it does.
  void adopt(std::unique_ptr<InaRail> rack, Transport& transport, std::uint64_t rate_bps);
  TransportListener& transport_listener() { return *told_; }
  /// Chunks have so many lanes on all ranks. Before the first slice; the rack is attached if there is one.
  void compose(MemberRing ring, std::uint32_t lanes);

  std::string_view kind() const override { return "ina"; }
  bool takes() const override { return ring_ ? hosts_->takes() : rack_->takes(); }
  void start(const Slice& slice, Time now) override;
  void pass_over(const CallDescription& call, Time now) override;
  Time deadline() const override { return rack_->deadline(); }
  void expire(Time now) override { rack_->expire(now); }
  void abort() override;
  void halt(Time now) override;
  void restart(const Restart& restart, Time now) override;
  bool ready() const override { return in_trees() ? rack_->ready() : !halted_; }
  /// The same number on all ranks.
  std::vector<std::uint64_t> next_chunks() const override;
  RailStats stats() const override;
  std::uint64_t progress() const override;
  std::vector<GroupStats> groups() const override { return rack_->groups(); }

 private:
  bool in_trees() const { return !ring_ || ring_->rack().size() > 1; }
  std::unique_ptr<Algorithm> choose(Transport& transport, const Slice& slice);

  void slice_done(std::uint64_t id, Time now) override;  // of the rail within
  void rail_failed(const Failure& failure, Time now) override { listener_.rail_failed(failure, now); }
  void stalled(const Stall& stall, Time now) override { listener_.stalled(stall, now); }
  std::optional<MessageLabel> pending_label(const SliceKey& key) const override {
    return listener_.pending_label(key);
  }

  RailListener& listener_;
  std::unique_ptr<InaRail> rack_;
  TransportListener* told_ = nullptr;  // by the transport's owner
  std::optional<MemberRing> ring_;
  ina::ComposedOptions options_;
  ina::RingCounts counts_;
  std::unique_ptr<RingRail> hosts_;             // all that is not the rack's
  ina::ComposedAllReduce* composed_ = nullptr;  // the call whose slices the rack has
  bool halted_ = false;
};

}  // namespace railweave
