// SPDX-License-Identifier: Apache-2.0
// The agent's calls, and how it ends. Who drives its loop is in seat.cpp, what recovery means for it in
// recovery.cpp.
#include "agent/agent.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace railweave {
namespace {

constexpr std::size_t kMaxStalls = 64;  // the oldest are forgotten

}  // namespace

Agent::Agent(int rank, int world_size) : rank_(rank), world_size_(world_size), calls_(rank, world_size) {
  if (world_size < 1 || rank < 0 || rank >= world_size)
    throw std::invalid_argument("rank is not in the world");
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for Python's threads
  background_ = std::thread([this] { work_in_background(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Agent::~Agent() { close(0); }

std::size_t Agent::add_rail(std::string name, LocalInterface at, std::uint64_t rate_bps,
                            const RailFactory& make) {
  std::size_t index = 0;
  on_loop([&] {
    if (recovery_ && recovery_->enabled()) throw std::logic_error("recovery is enabled after all rails");
    index = rails_.size();
    ChannelOwner& owner = *this;
    ChannelListener& listener = listeners_.emplace_back(owner, ChannelId{.rail = index});
    try {
      rails_.push_back(make(loop_, listener));
    } catch (...) {
      listeners_.pop_back();
      throw;
    }
    loop_.add_timed(*rails_.back());
    places_.push_back({.name = std::move(name), .at = std::move(at), .rate_bps = rate_bps});
    const std::lock_guard lock(mutex_);
    calls_.add_rail();
    states_.emplace_back();
  });
  return index;
}

// ---------------------------------------------------------------- submission

void Agent::check(const Submission& submission, std::uint32_t op_index) const {
  if (op_index != calls_.next()) {
    throw std::invalid_argument("call #" + std::to_string(op_index) + " is not the next one, which is #" +
                                std::to_string(calls_.next()));
  }
  const std::uint64_t count = submission.call.count;
  for (const Part& part : submission.parts) {
    const bool inside = part.offset <= count && part.count <= count - part.offset;
    if (part.rail >= rails_.size() || part.count == 0 || !inside) throw std::invalid_argument("no such part");
  }
}

// Calls before the ones that ranks wait here with are submitted everywhere, so they end and let go: no
// deadlock.
bool Agent::has_room() const { return calls_.kept_bytes() <= most_kept_ || calls_.kept_calls() <= 1; }

void Agent::submit(const Submission& submission, std::uint32_t op_index, bool start_now) {
  std::unique_lock lock(mutex_);
  check(submission, op_index);
  if (!reserved_ && !failure_)
    throw std::logic_error("no plan point is reserved for call #" + std::to_string(op_index));
  Calls::Memory memory;
  if (!failure_) memory = calls_.reserve(submission.call);
  if (memory.input) {
    lock.unlock();
    calls_.fill(submission, memory);
    lock.lock();
  }
  end_reservation();
  if (failure_) {
    failed_ops_.insert(op_index);
    return calls_.skip();
  }
  calls_.submit(submission, std::move(memory), EventLoop::now());
  if (!start_now) return;
  if (seat_ == Seat::kFree) {
    take_seat(lock);
    start_submitted(lock);
    leave_seat();
  } else {
    loop_.wake();
  }
}

// Rails are told of calls in their order, of each call's slices first.
void Agent::start_submitted(std::unique_lock<std::mutex>& lock) {
  while (started_ops_ < calls_.next()) {
    const std::uint32_t op_index = started_ops_;
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
      if (!in_use(rail)) continue;
      while (const auto slice = calls_.take({.rail = rail}, op_index + 1))
        to_start_.emplace_back(rail, *slice);
    }
    lock.unlock();
    for (const auto& [rail, slice] : to_start_) rails_[rail]->start(slice, EventLoop::now());
    to_start_.clear();
    lock.lock();
    started_ops_ = op_index + 1;
    pass_over(lock, op_index);
    if (recovery_ && recovery_->repairs_open()) start_on_repair_channels(lock);
  }
}

// The rails that have no part in a call learn of it last, so that a peer that uses one of them for it is
// found.
void Agent::pass_over(std::unique_lock<std::mutex>& lock, std::uint32_t op_index) {
  const auto call = calls_.description(op_index);
  if (!call) return;
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    if (!in_use(rail) || calls_.has_part(op_index, rail)) continue;
    lock.unlock();
    rails_[rail]->pass_over(*call, EventLoop::now());
    lock.lock();
  }
}

std::optional<CallDescription> Agent::pending_call(ChannelId channel, std::uint32_t op_index) const {
  if (channel.repair || !in_use(channel.rail))
    return std::nullopt;  // these carry other things than users' calls
  const std::lock_guard lock(mutex_);
  // A rail that has a part knows of it itself, until it is past it.
  if (op_index >= started_ops_ || calls_.has_part(op_index, channel.rail)) return std::nullopt;
  return calls_.description(op_index);
}

// ---------------------------------------------------------------- completion

void Agent::slice_done(ChannelId channel, std::uint64_t id, Time now) {
  if (recovery_ && !channel.repair && recovery_->trial_done(channel.rail, id, now)) return;
  std::unique_lock lock(mutex_);
  const auto finished = calls_.finish(channel, id, now);
  if (!finished) return;
  records_.add({.op_index = finished->op_index,
                .rail = channel.rail,
                .start = finished->start,
                .end = now,
                .bytes = finished->bytes,
                .repair = channel.repair});
  if (finished->last) hand_over(lock, *finished);
}

void Agent::hand_over(std::unique_lock<std::mutex>& lock, const Calls::Finished& finished) {
  if (const auto& delivery = finished.delivery) {
    lock.unlock();
    std::memcpy(delivery->to, delivery->from, delivery->bytes);
    lock.lock();
  }
  const std::uint32_t before = calls_.completed();
  calls_.complete(finished.op_index);
  changed_.notify_all();
  if (recovery_ && recovery_->enabled() && calls_.completed() != before)
    recovery_->completed(calls_.completed());
}

Outcome Agent::wait(std::uint32_t op_index, Time latest) {
  std::unique_lock lock(mutex_);
  return wait_for(lock, [this, op_index] { return !calls_.pending(op_index); }, latest);
}

bool Agent::done(std::uint32_t op_index) const {
  const std::lock_guard lock(mutex_);
  return !calls_.pending(op_index);
}

std::vector<std::size_t> Agent::lagging(std::uint32_t op_index) const {
  const std::lock_guard lock(mutex_);
  return calls_.lagging(op_index);
}

std::optional<Failure> Agent::failure_of(std::uint32_t op_index) const {
  const std::lock_guard lock(mutex_);
  return failed_ops_.contains(op_index) ? failure_ : std::nullopt;
}

std::optional<Failure> Agent::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// ---------------------------------------------------------------- reports

std::vector<RailStats> Agent::stats() {
  std::vector<RailStats> all;
  on_loop([&] {
    for (const auto& rail : rails_) all.push_back(rail->stats());
  });
  return all;
}

std::vector<std::vector<GroupStats>> Agent::groups() {
  std::vector<std::vector<GroupStats>> all;
  on_loop([&] {
    for (const auto& rail : rails_) all.push_back(rail->groups());
  });
  return all;
}

std::vector<SliceRecord> Agent::drain_records(Records::Reader reader) {
  const std::lock_guard lock(mutex_);
  return records_.drain(reader);
}

void Agent::stalled(std::size_t rail, const Stall& stall, Time now) {
  if (recovery_ && recovery_->enabled()) recovery_->stalled(rail, stall, now);
  const std::lock_guard lock(mutex_);
  if (stalls_.size() == kMaxStalls) stalls_.pop_front();
  stalls_.emplace_back(rail, stall);
  stall_told_.notify_all();
}

std::optional<std::pair<std::size_t, Stall>> Agent::next_stall(Time latest) {
  std::unique_lock lock(mutex_);
  const auto told = [this] { return !stalls_.empty() || stopping_; };
  const Duration left = std::max<Duration>(0, latest - EventLoop::now());
  if (!stall_told_.wait_for(lock, std::chrono::nanoseconds(left), told) || stalls_.empty())
    return std::nullopt;
  const auto stall = stalls_.front();
  stalls_.pop_front();
  return stall;
}

// ---------------------------------------------------------------- failure and the end

void Agent::rail_failed(ChannelId channel, const Failure& failure, Time now) {
  const bool of_rail = failure.kind == FailureKind::kSilent ||
                       (failure.kind == FailureKind::kRailDown && !failure.by_peer);  // who says so has ended
  if (of_rail && recovery_ && recovery_->enabled()) return recovery_->rail_failed(channel, failure, now);
  if (of_rail && undecided_) {
    early_failures_.try_emplace(channel.rail, failure);
    return;
  }
  Failure located = failure;
  if (located.rail.empty()) located.rail = places_[channel.rail].name;
  if (located.kind == FailureKind::kSilent) judge(channel.rail, located, now);
  end_all(located, now);
}

// A peer that is silent here and heard on another rail has lost its path, not its life.
void Agent::judge(std::size_t rail, Failure& silence, Time now) const {
  if (silence.by_peer || silence.rank < 0) {
    silence.kind = silence.by_peer ? FailureKind::kPeerLost : FailureKind::kRailDown;
    return;
  }
  bool alive = false;
  for (std::size_t other = 0; other < rails_.size(); ++other)
    alive = alive || (other != rail && rails_[other]->hears(silence.rank, now));
  silence.kind = alive ? FailureKind::kRailDown : FailureKind::kPeerLost;
  silence.message += alive ? "; it lives, other rails hear it: the path to it is down"
                           : "; no rail hears it: it has died, or can be reached by none";
}

void Agent::fail(const Failure& failure) {
  on_loop([&] { end_all(failure, EventLoop::now()); });
}

void Agent::end_all(const Failure& failure, Time now) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    started_ops_ = calls_.next();
  }
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    if (in_use(rail)) rails_[rail]->announce(failure, now);
    rails_[rail]->abort();
  }
  if (recovery_) recovery_->end();
  // Only now are the callers' buffers free.
  const std::lock_guard lock(mutex_);
  for (const std::uint32_t op_index : calls_.abandon()) failed_ops_.insert(op_index);
  changed_.notify_all();
}

void Agent::close(Duration linger) {
  if (!background_.joinable()) return;
  const Time latest = EventLoop::now() + linger;
  on_loop([this] {
    std::unique_lock lock(mutex_);
    const std::size_t unfinished = calls_.pending_calls();
    lock.unlock();
    if (unfinished == 0) return;
    end_all({.kind = FailureKind::kPeerLost,
             .rank = rank_,
             .message = "rank " + std::to_string(rank_) + " has closed its communicator with " +
                        std::to_string(unfinished) + " calls unfinished"},
            EventLoop::now());
  });
  std::unique_lock lock(mutex_);
  take_seat(lock);
  const auto nobody_needs_this = [this] { return failure_ || released_ >= calls_.next(); };
  if (recovery_ && recovery_->enabled()) {
    linger_until(lock, nobody_needs_this, latest);
    recovery_->leave(EventLoop::now());
    recovery_->pump(EventLoop::now());
  }
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    if (in_use(rail)) rails_[rail]->close(EventLoop::now());
  }
  const auto all_closed = [this] {
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
      if (in_use(rail) && !rails_[rail]->closed()) return false;
    }
    return true;
  };
  linger_until(lock, all_closed, latest);
  leave_seat();
  stopping_ = true;
  lock.unlock();
  stall_told_.notify_all();
  background_wanted_.notify_all();
  loop_.wake();
  background_.join();
  end_all({.kind = FailureKind::kInternal, .rank = -1, .message = "the communicator is closed"},
          EventLoop::now());
}

}  // namespace railweave
