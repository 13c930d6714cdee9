// SPDX-License-Identifier: Apache-2.0
// Effects of recovery's decisions on an agent's calls.
#include <stdexcept>
#include <utility>

#include "agent/agent.hpp"

namespace railweave {

std::uint16_t Agent::open_control(std::size_t rail) {
  std::uint16_t port = 0;
  on_loop([&] {
    if (!recovery_) recovery_ = std::make_unique<RecoveryDriver>(loop_, *this);
    undecided_ = true;
    port = recovery_->open(rail, places_.at(rail).at, places_[rail].rate_bps);
  });
  return port;
}

void Agent::enable_recovery(const std::vector<std::vector<SocketAddress>>& members,
                            std::vector<std::uint64_t> rates, Duration peer_timeout, std::size_t most_kept) {
  on_loop([&] {
    if (!recovery_ || recovery_->enabled())
      throw std::logic_error("recovery is enabled once, after its ports");
    if (rails_.size() < 2 || world_size_ < 2)
      throw std::logic_error("recovery wants two rails and two ranks");
    if (members.size() != rails_.size())
      throw std::invalid_argument("members of " + std::to_string(members.size()) + " rails instead of " +
                                  std::to_string(rails_.size()));
    if (rates.size() != rails_.size())
      throw std::invalid_argument("rates of " + std::to_string(rates.size()) + " rails instead of " +
                                  std::to_string(rails_.size()));
    for (const auto& ranks : members) {
      if (ranks.size() != static_cast<std::size_t>(world_size_))
        throw std::invalid_argument(std::to_string(ranks.size()) + " members instead of " +
                                    std::to_string(world_size_));
    }
    std::vector<Rail*> rails;
    for (const auto& rail : rails_) rails.push_back(rail.get());
    const Time now = EventLoop::now();
    {
      const std::lock_guard lock(mutex_);
      if (calls_.next() > 0) throw std::logic_error("recovery is enabled before the first call");
      calls_.keep(std::move(rates));
      most_kept_ = most_kept;
      for (RailState& state : states_) state.since = now;
    }
    recovery_->enable(std::move(rails), secret(), members, peer_timeout, now);
    report_early_failures(now);
  });
}

void Agent::forgo_recovery() {
  on_loop([this] { report_early_failures(EventLoop::now()); });
}

void Agent::report_early_failures(Time now) {
  undecided_ = false;
  for (const auto& [rail, failure] : std::exchange(early_failures_, {}))
    rail_failed({.rail = rail, .repair = false}, failure, now);
}

Outcome Agent::plan_point(PlanPoint& point, Time latest) {
  std::unique_lock lock(mutex_);
  const auto reached = [this] { return failure_.has_value() || (!calls_.preparing() && has_room()); };
  const Outcome outcome = shared_loop_.wait(lock, reached, latest);
  point = next_point();
  return outcome;
}

std::uint32_t Agent::next_op() const {
  const std::lock_guard lock(mutex_);
  return calls_.next();
}

std::vector<Change> Agent::changes(std::size_t since) {
  const std::lock_guard lock(mutex_);
  for (; forgotten_changes_ < since && !changes_.empty(); ++forgotten_changes_) changes_.pop_front();
  return {changes_.begin(), changes_.end()};
}

Outcome Agent::wait_change(std::size_t since, Time latest) {
  std::unique_lock lock(mutex_);
  return shared_loop_.wait(lock, [&] { return known_changes() > since || failure_.has_value(); }, latest);
}

void Agent::set_obstacle(std::size_t rail, const std::string& reason) {
  on_loop([&] {
    if (rail >= rails_.size()) throw std::invalid_argument("no rail " + std::to_string(rail));
    if (recovery_ && recovery_->enabled()) recovery_->set_obstacle(rail, reason, EventLoop::now());
  });
}

void Agent::suspect(std::size_t rail, const std::string& reason) {
  on_loop([&] {
    if (rail >= rails_.size()) throw std::invalid_argument("no rail " + std::to_string(rail));
    if (!recovery_ || !recovery_->enabled())
      throw std::logic_error("without recovery no rail can be excluded");
    const Failure failure{.kind = FailureKind::kSilent, .rank = -1, .message = reason};
    recovery_->rail_failed({.rail = rail, .repair = false}, failure, EventLoop::now());
  });
}

std::vector<RailState> Agent::rail_states() {
  std::vector<RailState> states;
  on_loop([&] {
    const Time now = EventLoop::now();
    std::unique_lock lock(mutex_);
    states = states_;
    lock.unlock();
    for (std::size_t rail = 0; rail < states.size(); ++rail) {
      RailState& state = states[rail];
      if (state.state != recovery::State::kUp) state.down += now - state.since;
      if (state.state == recovery::State::kUp && recovery_) state.reason = recovery_->suspicion(rail, now);
    }
  });
  return states;
}

// ---------------------------------------------------------------- reported by the driver

recovery::Position Agent::prepare(recovery::RailSet alive) {
  const std::lock_guard lock(mutex_);
  return calls_.prepare(alive);
}

void Agent::commit(const recovery::Commit& commit) {
  const std::lock_guard lock(mutex_);
  calls_.apply(commit);
  calls_.release(released_);
  Change change{.from_op = commit.boundary, .alive = {}, .reasons = {}};
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    const bool alive = recovery::has(commit.alive, rail);
    change.alive.push_back(alive);
    change.reasons.push_back(alive ? "" : states_[rail].reason);
  }
  changes_.push_back(std::move(change));
  shared_loop_.notify();
}

void Agent::go_on() {
  std::unique_lock lock(mutex_);
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    start_slices(lock, {.rail = rail});
    start_slices(lock, {.rail = rail, .repair = true});
  }
}

void Agent::all_completed(std::uint32_t op_index) {
  const std::lock_guard lock(mutex_);
  released_ = op_index;
  // The other ranks cut by the position that this rank reported, so it keeps these calls until the decision.
  if (!calls_.preparing()) calls_.release(op_index);
  shared_loop_.notify();
}

void Agent::rail_changed(const recovery::RailChanged& change, std::uint32_t epoch, Time now) {
  const std::lock_guard lock(mutex_);
  RailState& state = states_[change.rail];
  if (state.state != recovery::State::kUp) {
    state.down += now - state.since;
  } else if (change.state != recovery::State::kUp) {
    ++state.failures;
    state.last_failure = change.reason;
  }
  state.state = change.state;
  state.reason = change.reason;
  state.since = now;
  state.epoch = epoch;
}

void Agent::restarting(const recovery::Restart& restart) {
  const std::lock_guard lock(mutex_);
  states_[restart.rail].incarnation = restart.incarnation;
}

std::optional<Calls::Laggard> Agent::laggard(std::size_t rail) const {
  const std::lock_guard lock(mutex_);
  if (calls_.preparing()) return std::nullopt;
  return calls_.laggard(rail);
}

std::uint32_t Agent::submitted() const {
  const std::lock_guard lock(mutex_);
  return calls_.next();
}

std::optional<Calls::Front> Agent::front(ChannelId channel) const {
  const std::lock_guard lock(mutex_);
  if (calls_.preparing()) return std::nullopt;
  return calls_.front(channel);
}

void Agent::peer_lost(int rank, const std::string& reason) {
  abort({.kind = FailureKind::kPeerLost, .rank = rank, .message = reason}, EventLoop::now());
}

}  // namespace railweave
