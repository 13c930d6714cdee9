// SPDX-License-Identifier: Apache-2.0
// A rail whose exceptions stay inside it.
#pragma once

#include <memory>
#include <utility>

#include "rails/rail.hpp"

namespace railweave {

/// Owns the handlers and timers of the rail within. An exception of that rail is reported as kRailDown. The
/// rail is then halted and does nothing until it is restarted. Only `restart` and `groups` throw; their
/// callers handle that.
class ContainedRail final : public Rail, public HandlerOwner {
 public:
  ContainedRail(EventLoop& loop, RailListener& listener, std::unique_ptr<Rail> rail)
      : loop_(loop), listener_(listener), rail_(std::move(rail)) {}

  std::string_view kind() const override { return rail_->kind(); }
  bool takes() const override { return running_ && rail_->takes(); }
  void start(const Slice& slice, Time now) override;
  void pass_over(const CallDescription& call, Time now) override;
  bool hears(int peer, Time now) const override { return rail_->hears(peer, now); }
  Time deadline() const override { return rail_->deadline(); }
  void expire(Time now) override { rail_->expire(now); }
  void abort() override;
  void halt(Time now) override;
  void restart(const Restart& restart, Time now) override;
  bool ready() const override { return running_ && rail_->ready(); }
  std::vector<std::uint64_t> next_chunks() const override;
  void announce(const Failure& failure, Time now) override;
  void close(Time now) override;
  bool closed() const override { return broken_ || rail_->closed(); }
  RailStats stats() const override;
  std::uint64_t progress() const override { return rail_->progress(); }
  std::vector<GroupStats> groups() const override { return rail_->groups(); }

  void handler_failed(const std::exception& error, Time now) override;

 private:
  template <typename Action>
  void contained(Time now, const Action& action);
  bool stop(Time now);
  bool let_go();
  void resume();

  EventLoop& loop_;
  RailListener& listener_;
  const std::unique_ptr<Rail> rail_;
  bool running_ = true;  // not halted or aborted
  bool aborted_ = false;
  bool broken_ = false;        // the rail has thrown since the last restart
  bool halted_ = true;         // the last halt has succeeded
  mutable RailStats stats_{};  // the last known ones
};

}  // namespace railweave
