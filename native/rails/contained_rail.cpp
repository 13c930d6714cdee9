// SPDX-License-Identifier: Apache-2.0
#include "rails/contained_rail.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace railweave {

template <typename Action>
void ContainedRail::contained(Time now, const Action& action) {
  const EventLoop::Owned owned(loop_, this);
  try {
    action();
  } catch (const std::exception& error) {
    loop_.suspend(*this);
    handler_failed(error, now);
  }
}

/// The rail stays suspended until its owner halts it. Otherwise its connections would close, and the peers
/// would report that instead of the cause. The listener is told first, because it may announce the failure.
void ContainedRail::handler_failed(const std::exception& error, Time now) {
  broken_ = true;
  if (!std::exchange(running_, false)) return;
  listener_.rail_failed({.kind = FailureKind::kRailDown,
                         .rank = -1,
                         .message = std::string("its own code failed: ") + error.what()},
                        now);
  if (!aborted_) stop(now);
}

void ContainedRail::resume() {
  try {
    loop_.resume(*this);
  } catch (const std::exception&) {  // the rail stays suspended until `restart`
  }
}

/// Makes the rail release all memory of its slices. False if it has thrown: then only the suspension keeps
/// its code from running.
bool ContainedRail::stop(Time now) {
  const EventLoop::Owned owned(loop_, this);
  try {
    rail_->halt(now);
    halted_ = true;
  } catch (const std::exception&) {
    halted_ = false;
    loop_.suspend(*this);
    let_go();
  }
  return halted_;
}

bool ContainedRail::let_go() {
  const EventLoop::Owned owned(loop_, this);
  try {
    rail_->abort();
    return true;
  } catch (const std::exception&) {
    loop_.suspend(*this);
    return false;
  }
}

void ContainedRail::start(const Slice& slice, Time now) {
  if (running_) contained(now, [&] { rail_->start(slice, now); });
}

void ContainedRail::pass_over(const CallDescription& call, Time now) {
  if (running_) contained(now, [&] { rail_->pass_over(call, now); });
}

void ContainedRail::abort() {
  running_ = false;
  aborted_ = true;
  if (let_go()) return resume();
  broken_ = true;
}

void ContainedRail::halt(Time now) {
  running_ = false;
  if (stop(now)) return resume();
  broken_ = true;
}

void ContainedRail::restart(const Restart& restart, Time now) {
  if (!halted_ && !stop(now)) throw std::runtime_error("the rail could not be halted");
  try {
    loop_.resume(*this);
    const EventLoop::Owned owned(loop_, this);
    running_ = true;  // it may report failures from here on
    broken_ = false;
    thrown_.reset();
    rail_->restart(restart, now);
  } catch (const std::exception&) {
    halt(now);
    throw;
  }
}

std::vector<std::uint64_t> ContainedRail::next_chunks() const {
  try {
    return rail_->next_chunks();
  } catch (const std::exception&) {
    return {};
  }
}

void ContainedRail::announce(const Failure& failure, Time now) {
  contained(now, [&] { rail_->announce(failure, now); });
}

void ContainedRail::close(Time now) {
  if (!broken_) contained(now, [&] { rail_->close(now); });
}

RailStats ContainedRail::stats() const {
  try {
    stats_ = rail_->stats();
  } catch (const std::exception&) {  // return the last known ones
  }
  return stats_;
}

}  // namespace railweave
