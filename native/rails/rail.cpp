// SPDX-License-Identifier: Apache-2.0
#include "rails/rail.hpp"

#include <stdexcept>
#include <utility>

namespace railweave {

template <typename Action>
void Rail::as_owner(const Action& action) {
  if (loop_ == nullptr) return action();
  const EventLoop::Owned owned(*loop_, this);
  action();
}

/// Returns false and suspends the rail if the action throws.
template <typename Action>
bool Rail::attempt(const Action& action) {
  try {
    as_owner(action);
    return true;
  } catch (const std::exception&) {
    suspend();
    return false;
  }
}

template <typename Action>
void Rail::contained(Time now, const Action& action) {
  try {
    as_owner(action);
  } catch (const std::exception& error) {
    suspend();
    handler_failed(error, now);
  }
}

void Rail::suspend() {
  if (loop_ != nullptr) loop_->suspend(*this);
}

void Rail::resume() {
  try {
    if (loop_ != nullptr) loop_->resume(*this);
  } catch (const std::exception&) {  // the rail stays suspended until `restart`
  }
}

/// The rail stays suspended until its owner halts it. Otherwise its connections would close, and the peers
/// would report that instead of the cause. The listener is told first, because it may announce the failure.
void Rail::handler_failed(const std::exception& error, Time now) {
  broken_ = true;
  if (state_ != State::kRunning) return;
  state_ = State::kHaltFailed;
  listener_.rail_failed({.kind = FailureKind::kRailDown,
                         .rank = -1,
                         .message = std::string("its own code failed: ") + error.what()},
                        now);
  if (state_ != State::kAborted) stop(now);
}

/// Makes the rail release all memory of its slices. Returns false if the rail throws: then only the
/// suspension keeps its code from running.
bool Rail::stop(Time now) {
  state_ = State::kHalted;
  if (attempt([&] { do_halt(now); })) return true;
  state_ = State::kHaltFailed;
  attempt([&] { do_abort(); });
  return false;
}

void Rail::start(const Slice& slice, Time now) {
  if (state_ == State::kRunning) contained(now, [&] { do_start(slice, now); });
}

void Rail::skip_call(Time now) {
  if (state_ == State::kRunning) contained(now, [&] { do_skip_call(now); });
}

void Rail::expire(Time now) {
  if (thrown_) throw std::runtime_error(*std::exchange(thrown_, std::nullopt));
  do_expire(now);
}

void Rail::abort() {
  state_ = State::kAborted;
  if (attempt([&] { do_abort(); })) return resume();
  broken_ = true;
}

void Rail::halt(Time now) {
  if (stop(now)) return resume();
  broken_ = true;
}

void Rail::restart(const Restart& restart, Time now) {
  if (state_ == State::kHaltFailed && !stop(now)) throw std::runtime_error("the rail could not be halted");
  try {
    if (loop_ != nullptr) loop_->resume(*this);
    state_ = State::kRunning;  // the rail may report failures from here on
    broken_ = false;
    thrown_.reset();
    as_owner([&] { do_restart(restart, now); });
  } catch (const std::exception&) {
    halt(now);
    throw;
  }
}

std::vector<std::uint64_t> Rail::next_chunks() const {
  try {
    return do_next_chunks();
  } catch (const std::exception&) {
    return {};
  }
}

void Rail::announce(const Failure& failure, Time now) {
  contained(now, [&] { do_announce(failure, now); });
}

void Rail::close(Time now) {
  if (!broken_) contained(now, [&] { do_close(now); });
}

RailStats Rail::stats() const {
  try {
    stats_ = do_stats();
  } catch (const std::exception&) {  // return the last known counts
  }
  return stats_;
}

}  // namespace railweave
