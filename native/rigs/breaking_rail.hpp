// SPDX-License-Identifier: Apache-2.0
// A rail that throws an exception where a test wants one.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rails/ring_rail.hpp"

namespace railweave {

/// Passes reports on, or throws.
struct BreakingListener : RailListener {
  explicit BreakingListener(RailListener& listener) : to(listener) {}

  void pass(const char* here) const {
    if (where != here || times == 0) return;
    --times;
    throw std::runtime_error(where + " is broken");
  }
  void slice_done(std::uint64_t id, Time now) override {
    pass("slice_done");
    to.slice_done(id, now);
  }
  void rail_failed(const Failure& failure, Time now) override { to.rail_failed(failure, now); }
  std::optional<MessageLabel> own_label(const SliceKey& key) const override { return to.own_label(key); }

  RailListener& to;
  std::string where{};
  mutable int times = 0;
};

/// The next `times` calls of the function `where` throw. "slice_done" throws inside a handler of the rail.
class BreakingRail final : private BreakingListener, public RingRail {
 public:
  BreakingRail(EventLoop& loop, std::unique_ptr<Transport> transport, RailListener& listener)
      : BreakingListener(listener),
        RingRail(&loop, std::move(transport), static_cast<BreakingListener&>(*this), {}) {}

  void break_at(std::string here, int often) {
    where = std::move(here);
    times = often;
  }

 private:
  bool do_can_start() const override {
    pass("can_start");
    return RingRail::do_can_start();
  }
  void do_start(const Slice& slice, Time now) override {
    pass("start");
    RingRail::do_start(slice, now);
  }
  void do_skip_call(Time now) override {
    pass("skip_call");
    RingRail::do_skip_call(now);
  }
  Time do_deadline() const override {
    pass("deadline");
    return where == "expire" && times > 0 ? 0 : RingRail::do_deadline();
  }
  void do_expire(Time now) override {
    pass("expire");
    RingRail::do_expire(now);
  }
  void do_abort() override {
    pass("abort");
    RingRail::do_abort();
  }
  void do_halt(Time now) override {
    pass("halt");
    RingRail::do_halt(now);
  }
  void do_restart(const Restart& restart, Time now) override {
    pass("restart");
    RingRail::do_restart(restart, now);
  }
  std::vector<std::uint64_t> do_next_chunks() const override {
    pass("next_chunks");
    return RingRail::do_next_chunks();
  }
  void do_announce(const Failure& failure, Time now) override {
    pass("announce");
    RingRail::do_announce(failure, now);
  }
  RailStats do_stats() const override {
    pass("stats");
    return RingRail::do_stats();
  }
  std::uint64_t do_progress() const override {
    pass("progress");
    return RingRail::do_progress();
  }
};

}  // namespace railweave
