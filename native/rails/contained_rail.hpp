// SPDX-License-Identifier: Apache-2.0
// A rail whose exceptions stay inside it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
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
  bool takes() const override { return running_ && asked(false, &Rail::takes); }
  void start(const Slice& slice, Time now) override;
  void pass_over(const CallDescription& call, Time now) override;
  bool hears(int peer, Time now) const override { return asked(false, &Rail::hears, peer, now); }
  Time deadline() const override { return thrown_ ? 0 : asked(Time{0}, &Rail::deadline); }
  void expire(Time now) override {
    if (thrown_) throw std::runtime_error(*std::exchange(thrown_, std::nullopt));
    rail_->expire(now);
  }
  void abort() override;
  void halt(Time now) override;
  void restart(const Restart& restart, Time now) override;
  bool ready() const override { return running_ && asked(false, &Rail::ready); }
  std::vector<std::uint64_t> next_chunks() const override;
  void announce(const Failure& failure, Time now) override;
  void close(Time now) override;
  bool closed() const override { return broken_ || asked(true, &Rail::closed); }
  RailStats stats() const override;
  std::uint64_t progress() const override { return asked(std::uint64_t{0}, &Rail::progress); }
  std::vector<GroupStats> groups() const override { return rail_->groups(); }

  void handler_failed(const std::exception& error, Time now) override;

 private:
  /// The rail's answer. If the rail throws, the answer is `otherwise`, and `expire` soon throws the same.
  template <typename Answer, typename Question, typename... Args>
  Answer asked(Answer otherwise, Question question, Args... args) const {
    try {
      return std::invoke(question, *rail_, args...);
    } catch (const std::exception& error) {
      thrown_ = error.what();
      return otherwise;
    }
  }
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
  bool broken_ = false;                          // the rail has thrown since the last restart
  bool halted_ = true;                           // the last halt has succeeded
  mutable std::optional<std::string> thrown_{};  // what `asked` has caught
  mutable RailStats stats_{};                    // the last known ones
};

}  // namespace railweave
