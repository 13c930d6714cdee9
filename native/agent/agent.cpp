// SPDX-License-Identifier: Apache-2.0
// The agent's calls, and its end. recovery.cpp has the effects of recovery.
#include "agent/agent.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace railweave {
namespace {

constexpr Duration kLongestGoodbye = 30 * kSecond;
constexpr std::size_t kMaxStalls = 64;  // more stalls replace the oldest
// Only callers of calls up to this size spin. Larger calls wait for links anyway.
constexpr std::size_t kSpinBytes = std::size_t{64} << 10;
// Bytes of a result that are copied between two turns of the loop; this takes less than a millisecond.
constexpr std::size_t kCopiedPerTurn = std::size_t{2} << 20;

}  // namespace

Agent::Agent(int rank, int world_size)
    : rank_(rank), world_size_(world_size), calls_(rank, world_size), shared_loop_(loop_, mutex_, *this) {
  if (world_size < 1 || rank < 0 || rank >= world_size)
    throw std::invalid_argument("rank is not in the world");
  on_loop([this] { loop_.add_timed(*this); });
}

void Agent::set_secret(const Secret& secret) {
  if (secret_) throw std::logic_error("the job's secret is set once");
  secret_ = secret;
}

const Secret& Agent::secret() const {
  if (!secret_) throw std::logic_error("the job's secret is set before its rails are connected");
  return *secret_;
}

Agent::~Agent() { close(0); }

std::size_t Agent::add_rail(std::string name, LocalInterface at, std::uint64_t rate_bps,
                            const RailFactory& make) {
  std::size_t index = 0;
  on_loop([&] {
    if (recovery_ && recovery_->enabled()) throw std::logic_error("recovery is enabled after all rails");
    index = rails_.size();
    ChannelListener& listener = listeners_.emplace_back(*this, ChannelId{.rail = index});
    try {
      rails_.push_back(make(loop_, listener));
    } catch (...) {
      listeners_.pop_back();
      throw;
    }
    const EventLoop::Owned owned(loop_, rails_.back().get());
    loop_.add_timed(*rails_.back());
    places_.push_back({.name = std::move(name), .at = std::move(at), .rate_bps = rate_bps});
    const std::lock_guard lock(mutex_);
    calls_.add_rail();
    states_.emplace_back();
  });
  return index;
}

// ---------------------------------------------------------------- the loop

void Agent::on_loop(const std::function<void()>& task) { shared_loop_.run(task); }

void Agent::on_rail(std::size_t rail, const std::function<void()>& task) {
  on_loop([&] {
    const EventLoop::Owned owned(loop_, rails_.at(rail).get());
    task();
  });
}

Outcome Agent::wait_until(const std::function<bool()>& reached, Time latest) {
  std::unique_lock lock(mutex_);
  return shared_loop_.wait_leading(lock, [&] { return failure_.has_value() || reached(); }, latest);
}

void Agent::after_turn() {
  if (recovery_) recovery_->pump(EventLoop::now());
}

void Agent::turn_failed(const std::exception& error) {
  abort({.kind = FailureKind::kInternal, .rank = -1, .message = error.what()}, EventLoop::now());
}

// ---------------------------------------------------------------- submission

void Agent::check(const Submission& submission, std::uint32_t op_index) const {
  if (op_index != calls_.next()) {
    throw std::logic_error("call #" + std::to_string(op_index) + " is not the next one, which is #" +
                           std::to_string(calls_.next()));
  }
  const std::uint64_t count = submission.call.count;
  for (const Part& part : submission.parts) {
    const bool inside = part.offset <= count && part.count <= count - part.offset;
    if (part.rail >= states_.size() || part.count == 0 || !inside) throw std::logic_error("no such part");
  }
}

// No deadlock: all ranks have submitted the calls before the one that waits here, so these calls end and free
// their memory. The largest call does not count, so that the next call need not wait for it and its survey.
bool Agent::has_room() const {
  if (calls_.kept_bytes() < most_kept_) return true;
  const std::size_t others = calls_.kept_beside_largest();
  return others == 0 || others < most_kept_;
}

bool Agent::submit(const Submission& submission, const PlanPoint& planned_from, bool start_now) {
  std::unique_lock lock(mutex_);
  check(submission, planned_from.op_index);
  Calls::Memory memory;
  if (!failure_) {
    if (!current(planned_from) || !has_room()) return false;
    memory = calls_.reserve(submission.call);
  }
  if (memory.input) {
    lock.unlock();
    calls_.fill(submission, memory);
    lock.lock();
  }
  if (failure_) {
    failed_ops_.insert(planned_from.op_index);
    calls_.skip();
    return true;
  }
  if (!current(planned_from)) return false;
  calls_.submit(submission, std::move(memory), EventLoop::now());
  if (start_now) shared_loop_.prompt(lock);
  return true;
}

// Rails learn of calls in order. Rails with slices of a call learn of it first.
void Agent::start_submitted() {
  std::unique_lock lock(mutex_);
  while (started_ops_ < calls_.next() && !closing_) {
    const std::uint32_t op_index = started_ops_++;
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
      start_slices(lock, {.rail = rail});
      start_slices(lock, {.rail = rail, .repair = true});
    }
    skip_call(lock, op_index);
  }
}

void Agent::start_slices(std::unique_lock<std::mutex>& lock, ChannelId channel) {
  if (channel.repair ? !recovery_ || !recovery_->repairs_open() : !in_use(channel.rail)) return;
  Rail& rail = channel.repair ? recovery_->repair(channel.rail) : *rails_[channel.rail];
  while (rail.can_start()) {
    const auto slice = calls_.take(channel, started_ops_);
    if (!slice) return;
    lock.unlock();
    rail.start(*slice, EventLoop::now());
    lock.lock();
  }
}

// Rails without a part in a call learn of it last. If a peer uses such a rail for this call, the rail can
// then report the mismatch.
void Agent::skip_call(std::unique_lock<std::mutex>& lock, std::uint32_t op_index) {
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    if (!in_use(rail) || calls_.has_part(op_index, rail)) continue;
    lock.unlock();
    rails_[rail]->skip_call(EventLoop::now());
    lock.lock();
  }
}

void ChannelListener::slice_done(std::uint64_t id, Time now) { agent_.slice_done(channel_, id, now); }

void ChannelListener::rail_failed(const Failure& failure, Time now) {
  agent_.rail_failed(channel_, failure, now);
}

void ChannelListener::stalled(const Stall& stall, Time now) { agent_.stalled(channel_.rail, stall, now); }

std::optional<MessageLabel> ChannelListener::own_label(const SliceKey& key) const {
  return agent_.own_label(channel_, key);
}

std::optional<MessageLabel> Agent::own_label(ChannelId channel, const SliceKey& key) const {
  if (!channel.repair && !in_use(channel.rail)) return std::nullopt;  // it carries a trial
  const std::lock_guard lock(mutex_);
  return key.op_index < started_ops_ ? calls_.label(channel, key) : std::nullopt;
}

// ---------------------------------------------------------------- completion

void Agent::slice_done(ChannelId channel, std::uint64_t id, Time now) {
  if (recovery_ && !channel.repair && recovery_->trial_done(channel.rail, id, now)) return;
  std::unique_lock lock(mutex_);
  const bool delivering = calls_.delivering();
  const auto finished = calls_.finish(channel, id, now);
  if (!finished) return;
  records_.add({.op_index = finished->op_index,
                .rail = channel.rail,
                .start = finished->start,
                .end = now,
                .bytes = finished->bytes,
                .repair = channel.repair});
  if (finished->last && !calls_.delivering()) shared_loop_.notify();
  if (finished->last && calls_.delivering() && !delivering) deliver(lock);  // otherwise in the next turns
  start_slices(lock, channel);
}

Time Agent::deadline() const {
  const std::lock_guard lock(mutex_);
  return calls_.delivering() ? 0 : kNever;
}

void Agent::expire(Time) {
  std::unique_lock lock(mutex_);
  if (calls_.delivering()) deliver(lock);
}

void Agent::deliver(std::unique_lock<std::mutex>& lock) {
  const Calls::Delivery part = calls_.next_delivery(kCopiedPerTurn);
  lock.unlock();
  std::memcpy(part.to, part.from, part.bytes);
  lock.lock();
  calls_.delivered(part);
  if (calls_.pending(part.op_index)) return;
  shared_loop_.notify();
  recovery_->completed(calls_.completed());
}

Outcome Agent::wait(std::uint32_t op_index, Time latest) {
  std::unique_lock lock(mutex_);
  const auto call = calls_.description(op_index);
  const bool spins = call && bytes_of(*call, rank_, world_size_).output <= kSpinBytes;
  return shared_loop_.wait(
      lock, [this, op_index] { return !calls_.pending(op_index); }, latest, spins ? spin_ : 0);
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
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
      all.push_back(rails_[rail]->stats());
      if (recovery_ && recovery_->enabled()) recovery_->add_counts(rail, all.back());
    }
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
  stall_reported_.notify_all();
}

std::optional<std::pair<std::size_t, Stall>> Agent::next_stall(Time latest) {
  std::unique_lock lock(mutex_);
  const auto reported = [this] { return !stalls_.empty() || closing_; };
  const Duration left = std::max<Duration>(0, latest - EventLoop::now());
  if (!stall_reported_.wait_for(lock, std::chrono::nanoseconds(left), reported) || stalls_.empty())
    return std::nullopt;
  const auto stall = stalls_.front();
  stalls_.pop_front();
  return stall;
}

// ---------------------------------------------------------------- failure and the end

void Agent::rail_failed(ChannelId channel, const Failure& failure, Time now) {
  // All ranks run the same trial, so different data was damaged on the way, or forged.
  const bool of_trial = failure.kind == FailureKind::kMismatch && !channel.repair && !in_use(channel.rail);
  const bool of_rail = failure.kind == FailureKind::kSilent || of_trial ||
                       (failure.kind == FailureKind::kRailDown && !failure.by_peer);  // that peer has ended
  if (of_rail && recovery_ && recovery_->enabled()) return recovery_->rail_failed(channel, failure, now);
  if (of_rail && undecided_) {
    early_failures_.try_emplace(channel.rail, failure);
    return;
  }
  Failure located = failure;
  if (located.rail.empty()) located.rail = places_[channel.rail].name;
  if (located.kind == FailureKind::kSilent) explain_silence(channel.rail, located, now);
  abort(located, now);
}

// A peer that is silent on this rail but heard on another one is alive: only the path is down.
void Agent::explain_silence(std::size_t rail, Failure& silence, Time now) const {
  if (silence.by_peer || silence.rank < 0) {
    silence.kind = silence.by_peer ? FailureKind::kPeerLost : FailureKind::kRailDown;
    return;
  }
  bool alive = false;
  for (std::size_t other = 0; other < rails_.size(); ++other)
    alive = alive || (other != rail && rails_[other]->heard_recently(silence.rank, now));
  silence.kind = alive ? FailureKind::kRailDown : FailureKind::kPeerLost;
  silence.message += alive ? "; it lives, other rails hear it: the path to it is down"
                           : "; no rail hears it: it has died, or can be reached by none";
}

void Agent::fail(const Failure& failure) {
  on_loop([&] { abort(failure, EventLoop::now()); });
}

// An exception here would leave callers waiting forever. Rails handle their own exceptions.
void Agent::abort(const Failure& failure, Time now) noexcept {
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
  // Rails use the callers' buffers until here.
  const std::lock_guard lock(mutex_);
  for (const std::uint32_t op_index : calls_.abort()) failed_ops_.insert(op_index);
  shared_loop_.notify();
}

void Agent::close(Duration linger) {
  shared_loop_.close([&] {
    say_goodbye(linger);
    abort({.kind = FailureKind::kInternal, .rank = -1, .message = "the communicator is closed"},
          EventLoop::now());
  });
}

void Agent::say_goodbye(Duration linger) {
  const Time begun = EventLoop::now();
  Time latest = begun + linger;
  std::unique_lock lock(mutex_);
  closing_ = true;
  stall_reported_.notify_all();
  const std::size_t unfinished = calls_.pending_calls();
  lock.unlock();
  if (unfinished > 0) {
    abort({.kind = FailureKind::kPeerLost,
           .rank = rank_,
           .message = "rank " + std::to_string(rank_) + " has closed its communicator with " +
                      std::to_string(unfinished) + " calls unfinished"},
          EventLoop::now());
  }
  if (recovery_ && recovery_->enabled()) {
    shared_loop_.turn_until([this] { return failure_ || released_ >= calls_.next(); }, latest);
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
  // A peer may still lack data that this rank multicast, so this rank answers as long as it is asked.
  for (std::uint64_t before = ~std::uint64_t{0}; !all_closed() && before != resends();) {
    before = resends();
    shared_loop_.turn_until(all_closed, latest);
    latest = std::min(EventLoop::now() + linger, begun + kLongestGoodbye);
  }
}

std::uint64_t Agent::resends() const {
  std::uint64_t bytes = 0;
  for (std::size_t rail = 0; rail < rails_.size(); ++rail)
    if (in_use(rail) && rails_[rail]->kind() == "ina") bytes += rails_[rail]->stats().sent.resends;
  return bytes;
}

}  // namespace railweave
