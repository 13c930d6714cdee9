// SPDX-License-Identifier: Apache-2.0
// A rail whose own code throws where a test wants it.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rails/rail.hpp"

namespace railweave {

/// The rail within, until `break_at`.
class BreakingRail final : public Rail, private RailListener {
 public:
  explicit BreakingRail(RailListener& listener) : listener_(listener) {}

  /// Where the rail within is to report.
  RailListener& listener() { return *this; }
  void adopt(std::unique_ptr<Rail> rail) { rail_ = std::move(rail); }
  /// The next `times` calls of the function with this name throw; "slice_done" does so inside of a handler of
  /// the rail within.
  void break_at(std::string where, int times) {
    where_ = std::move(where);
    times_ = times;
  }

  std::string_view kind() const override { return rail_->kind(); }
  bool takes() const override {
    pass("takes");
    return rail_->takes();
  }
  void start(const Slice& slice, Time now) override {
    pass("start");
    rail_->start(slice, now);
  }
  void pass_over(const CallDescription& call, Time now) override {
    pass("pass_over");
    rail_->pass_over(call, now);
  }
  bool hears(int peer, Time now) const override { return rail_->hears(peer, now); }
  Time deadline() const override {
    pass("deadline");
    return where_ == "expire" && times_ > 0 ? 0 : rail_->deadline();
  }
  void expire(Time now) override {
    pass("expire");
    rail_->expire(now);
  }
  void abort() override {
    pass("abort");
    rail_->abort();
  }
  void halt(Time now) override {
    pass("halt");
    rail_->halt(now);
  }
  void restart(const Restart& restart, Time now) override {
    pass("restart");
    rail_->restart(restart, now);
  }
  bool ready() const override { return rail_->ready(); }
  std::vector<std::uint64_t> next_chunks() const override {
    pass("next_chunks");
    return rail_->next_chunks();
  }
  void announce(const Failure& failure, Time now) override {
    pass("announce");
    rail_->announce(failure, now);
  }
  void close(Time now) override {
    pass("close");
    rail_->close(now);
  }
  bool closed() const override { return rail_->closed(); }
  RailStats stats() const override {
    pass("stats");
    return rail_->stats();
  }
  std::uint64_t progress() const override {
    pass("progress");
    return rail_->progress();
  }

 private:
  void pass(const char* where) const {
    if (where_ != where || times_ == 0) return;
    --times_;
    throw std::runtime_error(where_ + " is broken");
  }
  void slice_done(std::uint64_t id, Time now) override {
    pass("slice_done");
    listener_.slice_done(id, now);
  }
  void rail_failed(const Failure& failure, Time now) override { listener_.rail_failed(failure, now); }
  std::optional<MessageLabel> pending_label(const SliceKey& key) const override {
    return listener_.pending_label(key);
  }

  RailListener& listener_;
  std::unique_ptr<Rail> rail_;
  std::string where_{};
  mutable int times_ = 0;
};

}  // namespace railweave
