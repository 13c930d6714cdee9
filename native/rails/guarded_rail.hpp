// SPDX-License-Identifier: Apache-2.0
// A rail whose own protocol has no words for failures, beside a transport that has.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "collectives/transport.hpp"
#include "rails/rail.hpp"

namespace railweave {

/// The switch of an in-network rail tells its group that marks differ, not whose and how, and cannot tell
/// that a rank has died. The control transport, on the same plane, carries why a rank gives up, notices when
/// one goes, and on a mismatch lets the ranks show each other their labels, so that each has both
/// descriptions.
class GuardedRail final : public Rail, private RailListener, private TransportListener {
 public:
  explicit GuardedRail(RailListener& listener) : listener_(listener) {}

  /// Where the rail within is to report.
  RailListener& listener() { return *this; }
  /// Once, before anything else. `user`, if not null, is told what becomes of messages that the rail within
  /// posts to the control transport.
  void adopt(std::unique_ptr<Rail> rail, std::unique_ptr<Transport> control,
             TransportListener* user = nullptr);

  std::string_view kind() const override { return rail_->kind(); }
  bool takes() const override { return rail_->takes(); }
  void start(const Slice& slice, Time now) override;
  void pass_over(const CallDescription& call, Time now) override { rail_->pass_over(call, now); }
  Time deadline() const override;
  void expire(Time now) override;
  void abort() override;
  void halt(Time now) override;
  void restart(const Restart& restart, Time now) override;
  bool ready() const override { return rail_->ready() && control_->ready(); }
  std::vector<std::uint64_t> next_chunks() const override { return rail_->next_chunks(); }
  void announce(const Failure& failure, Time now) override { control_->announce(failure, now); }
  void close(Time now) override;
  bool closed() const override { return rail_->closed() && control_->closed(); }
  RailStats stats() const override;
  std::uint64_t progress() const override { return rail_->progress(); }
  std::vector<GroupStats> groups() const override { return rail_->groups(); }

 private:
  void slice_done(std::uint64_t id, Time now) override;
  void stalled(const Stall& stall, Time now) override { listener_.stalled(stall, now); }
  std::optional<MessageLabel> pending_label(const SliceKey& key) const override {
    return listener_.pending_label(key);
  }
  void rail_failed(const Failure& failure, Time now) override;
  void sent(int peer, Time now) override;
  void received(int peer, Time now) override;
  void joined(Time now) override;
  void left(int peer, Time now) override;
  void begin_grace(Time now);
  void failed(const Failure& failure, Time now) override;
  void show_label(const MessageLabel& own, Time now);
  void doubt(Time now);
  void stop();

  RailListener& listener_;
  std::unique_ptr<Rail> rail_;
  std::unique_ptr<Transport> control_;
  TransportListener* user_ = nullptr;
  std::size_t slices_ = 0;    // in progress
  Time show_until_ = kNever;  // the ranks show their labels: the rail has found a mismatch
  int left_ = -1;             // the first peer that has said goodbye
  Time grace_until_ = kNever;
  std::uint64_t progress_ = 0;  // of the rail, when the grace began
  std::array<std::byte, 1> out_{};
  std::array<std::byte, 1> in_{};
  bool ended_ = false;  // or halted
};

}  // namespace railweave
