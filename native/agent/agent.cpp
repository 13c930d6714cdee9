// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.hpp"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <utility>

namespace railweave {
namespace {

// A thread that has got its result comes back with the next call soon. For so long the loop is left to it:
// fetching the loop back from the background thread would cost each call a hand-over. Peers wait at most so
// long for an answer.
constexpr Duration kForegroundGrace = 5 * kMillisecond;
// A wait is cut into pieces of this length, so that a Python thread gets to look at its signals.
constexpr Duration kWaitSlice = 100 * kMillisecond;
constexpr std::size_t kMaxRecords = 1 << 16;  // the oldest are forgotten
constexpr std::size_t kMaxStalls = 64;        // likewise

auto chrono(Duration duration) { return std::chrono::nanoseconds(duration); }

}  // namespace

Agent::Agent(int rank, int world_size) : rank_(rank), world_size_(world_size) {
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

std::size_t Agent::add_rail(std::string name, const RailFactory& make) {
  std::size_t index = 0;
  on_loop([&] {
    index = rails_.size();
    std::unique_ptr<Rail> rail = make(index, loop_, *this);
    loop_.add_timed(*rail);
    rails_.push_back(std::move(rail));
    names_.push_back(std::move(name));
    rail_free_.push_back(0);
  });
  return index;
}

// ---------------------------------------------------------------- calls

std::uint32_t Agent::submit(const CallDescription& call, const std::byte* input, std::byte* output,
                            std::span<const Part> parts, bool start_now) {
  std::unique_lock lock(mutex_);
  for (const Part& part : parts) {
    const bool inside = part.offset <= call.count && part.count <= call.count - part.offset;
    if (part.rail >= rails_.size() || part.count == 0 || !inside) throw std::invalid_argument("no such part");
  }
  CallDescription indexed = call;
  indexed.op_index = next_op_++;
  if (failure_) {
    failed_ops_.insert(indexed.op_index);
    return indexed.op_index;
  }
  const std::size_t item = item_size(call.dtype);
  pending_[indexed.op_index] = {
      .call = indexed, .submitted = EventLoop::now(), .parts = {parts.begin(), parts.end()}};
  for (const Part& part : parts) {
    const Slice slice{.id = indexed.op_index,
                      .call = indexed,
                      .input = input + part.offset * item,
                      .output = output + part.offset * item,
                      .count = part.count,
                      .stride = 0,
                      .rank = rank_,
                      .world_size = world_size_};
    submitted_.push_back({.slice = slice, .rail = part.rail});
  }
  if (!start_now) return indexed.op_index;
  if (seat_ == Seat::kFree) {
    take_seat(lock);
    start_submitted(lock);
    leave_seat();
  } else {
    loop_.wake();
  }
  return indexed.op_index;
}

void Agent::start_submitted(std::unique_lock<std::mutex>& lock) {
  while (!submitted_.empty()) {
    const Submission next = submitted_.front();
    submitted_.pop_front();
    const std::uint32_t op_index = next.slice.call.op_index;
    const bool last = submitted_.empty() || submitted_.front().slice.call.op_index != op_index;
    lock.unlock();
    rails_[next.rail]->start(next.slice, EventLoop::now());
    lock.lock();
    if (last) pass_over(lock, op_index);
  }
}

// The rails that have no part in a call learn of it last, so that a peer that uses one of them for it is
// found.
void Agent::pass_over(std::unique_lock<std::mutex>& lock, std::uint32_t op_index) {
  started_ops_ = op_index + 1;
  const auto found = pending_.find(op_index);
  if (found == pending_.end() || found->second.parts.size() == rails_.size()) return;
  const CallDescription call = found->second.call;
  std::vector<bool> has_part(rails_.size());
  for (const Part& part : found->second.parts) has_part[part.rail] = true;
  lock.unlock();
  for (std::size_t rail = 0; rail < has_part.size(); ++rail) {
    if (!has_part[rail]) rails_[rail]->pass_over(call, EventLoop::now());
  }
  lock.lock();
}

std::optional<CallDescription> Agent::pending_call(std::uint32_t op_index) const {
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(op_index);
  if (found == pending_.end() || op_index >= started_ops_) return std::nullopt;
  return found->second.call;
}

Outcome Agent::wait(std::uint32_t op_index, Time latest) {
  std::unique_lock lock(mutex_);
  const auto reached = [this, op_index] { return !pending_.contains(op_index); };
  const auto seat_to_be_had = [this] { return seat_ != Seat::kForeground && seat_wanted_ == 0; };
  while (!reached()) {
    if (!seat_to_be_had()) {
      const Duration left = std::min(kWaitSlice, latest - EventLoop::now());
      const bool changed =
          changed_.wait_for(lock, chrono(left), [&] { return reached() || seat_to_be_had(); });
      if (!changed) return EventLoop::now() >= latest ? Outcome::kTimeout : Outcome::kInterrupted;
      continue;
    }
    take_seat(lock);
    const Outcome outcome = drive(lock, reached, latest);
    leave_seat();
    if (outcome != Outcome::kDone) return outcome;
  }
  return Outcome::kDone;
}

bool Agent::done(std::uint32_t op_index) const {
  const std::lock_guard lock(mutex_);
  return !pending_.contains(op_index);
}

std::vector<std::size_t> Agent::lagging(std::uint32_t op_index) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::size_t> rails;
  if (const auto found = pending_.find(op_index); found != pending_.end()) {
    for (const Part& part : found->second.parts) rails.push_back(part.rail);
  }
  return rails;
}

std::optional<Failure> Agent::failure_of(std::uint32_t op_index) const {
  const std::lock_guard lock(mutex_);
  return failed_ops_.contains(op_index) ? failure_ : std::nullopt;
}

std::optional<Failure> Agent::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Agent::slice_done(std::size_t rail, std::uint64_t id, Time now) {
  const auto op_index = static_cast<std::uint32_t>(id);
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(op_index);
  if (found == pending_.end()) return;
  Pending& op = found->second;
  const auto part =
      std::find_if(op.parts.begin(), op.parts.end(), [rail](const Part& p) { return p.rail == rail; });
  if (part == op.parts.end()) return;
  if (records_.size() == kMaxRecords) records_.pop_front();
  records_.push_back({.op_index = op_index,
                      .rail = rail,
                      .start = std::max(op.submitted, rail_free_[rail]),
                      .end = now,
                      .bytes = part->count * item_size(op.call.dtype)});
  rail_free_[rail] = now;
  op.parts.erase(part);
  if (!op.parts.empty()) return;
  pending_.erase(found);
  changed_.notify_all();
}

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

std::vector<SliceRecord> Agent::drain_records() {
  const std::lock_guard lock(mutex_);
  std::vector<SliceRecord> records(records_.begin(), records_.end());
  records_.clear();
  return records;
}

// ---------------------------------------------------------------- failure and the end

void Agent::rail_failed(std::size_t rail, const Failure& failure, Time now) {
  Failure located = failure;
  if (located.rail.empty()) located.rail = names_[rail];
  if (located.kind == FailureKind::kSilent) judge(rail, located, now);
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

void Agent::stalled(std::size_t rail, const Stall& stall, Time) {
  const std::lock_guard lock(mutex_);
  if (stalls_.size() == kMaxStalls) stalls_.pop_front();
  stalls_.emplace_back(rail, stall);
  stall_told_.notify_all();
}

std::optional<std::pair<std::size_t, Stall>> Agent::next_stall(Time latest) {
  std::unique_lock lock(mutex_);
  const auto told = [this] { return !stalls_.empty() || stopping_; };
  const Duration left = std::max<Duration>(0, latest - EventLoop::now());
  if (!stall_told_.wait_for(lock, chrono(left), told) || stalls_.empty()) return std::nullopt;
  const auto stall = stalls_.front();
  stalls_.pop_front();
  return stall;
}

void Agent::fail(const Failure& failure) {
  on_loop([&] { end_all(failure, EventLoop::now()); });
}

void Agent::end_all(const Failure& failure, Time now) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    submitted_.clear();
  }
  for (const auto& rail : rails_) {
    rail->announce(failure, now);
    rail->abort();
  }
  // Only now are the callers' buffers free.
  const std::lock_guard lock(mutex_);
  for (const auto& [op_index, op] : pending_) failed_ops_.insert(op_index);
  pending_.clear();
  changed_.notify_all();
}

void Agent::close(Duration linger) {
  if (!background_.joinable()) return;
  on_loop([this] {
    const Time now = EventLoop::now();
    std::unique_lock lock(mutex_);
    const std::size_t unfinished = pending_.size();
    lock.unlock();
    if (unfinished > 0) {
      end_all({.kind = FailureKind::kPeerLost,
               .rank = rank_,
               .message = "rank " + std::to_string(rank_) + " has closed its communicator with " +
                          std::to_string(unfinished) + " calls unfinished"},
              now);
    }
    for (const auto& rail : rails_) rail->close(now);
  });
  const auto all_closed = [this] {
    return std::all_of(rails_.begin(), rails_.end(), [](const auto& rail) { return rail->closed(); });
  };
  const Time latest = EventLoop::now() + linger;
  {
    std::unique_lock lock(mutex_);
    take_seat(lock);
    while (!all_closed() && EventLoop::now() < latest) turn(lock, latest);
    leave_seat();
    stopping_ = true;
  }
  stall_told_.notify_all();
  background_wanted_.notify_all();
  loop_.wake();
  background_.join();
  end_all({.kind = FailureKind::kInternal, .rank = -1, .message = "the communicator is closed"},
          EventLoop::now());
}

// ---------------------------------------------------------------- who drives the loop

void Agent::take_seat(std::unique_lock<std::mutex>& lock) {
  ++seat_wanted_;
  if (seat_ != Seat::kFree) loop_.wake();
  changed_.wait(lock, [this] { return seat_ == Seat::kFree; });
  --seat_wanted_;
  seat_ = Seat::kForeground;
}

void Agent::leave_seat() {
  seat_ = Seat::kFree;
  last_foreground_ = EventLoop::now();
  changed_.notify_all();
  if (!pending_.empty()) background_wanted_.notify_one();
}

void Agent::on_loop(const std::function<void()>& task) {
  std::unique_lock lock(mutex_);
  take_seat(lock);
  lock.unlock();
  std::exception_ptr thrown;
  try {
    task();
  } catch (...) {
    thrown = std::current_exception();
  }
  lock.lock();
  leave_seat();
  lock.unlock();
  if (thrown) std::rethrow_exception(thrown);
}

Outcome Agent::wait_until(const std::function<bool()>& reached, Time latest) {
  std::unique_lock lock(mutex_);
  take_seat(lock);
  const Outcome outcome = drive(lock, [&] { return failure_.has_value() || reached(); }, latest);
  leave_seat();
  return outcome;
}

// Holds the seat for at most a slice of time. kDone also means that another thread wants the seat: look
// again.
template <typename Reached>
Outcome Agent::drive(std::unique_lock<std::mutex>& lock, const Reached& reached, Time latest) {
  const Time slice_end = EventLoop::now() + kWaitSlice;
  for (start_submitted(lock); !reached() && seat_wanted_ == 0; start_submitted(lock)) {
    if (turn(lock, std::min(latest, slice_end))) return Outcome::kInterrupted;
    const Time now = EventLoop::now();
    if (!reached() && now >= latest) return Outcome::kTimeout;
    if (!reached() && now >= slice_end) return Outcome::kInterrupted;
  }
  return Outcome::kDone;
}

// True if a signal cut the turn short.
bool Agent::turn(std::unique_lock<std::mutex>& lock, Time latest) {
  lock.unlock();
  bool interrupted = false;
  try {
    interrupted = loop_.run_once(latest);
  } catch (const std::exception& error) {
    end_all({.kind = FailureKind::kInternal, .rank = -1, .message = error.what()}, EventLoop::now());
  }
  lock.lock();
  return interrupted;
}

void Agent::work_in_background() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Duration grace = last_foreground_ + kForegroundGrace - EventLoop::now();
    const bool busy = !pending_.empty() || grace <= 0;
    if (seat_ != Seat::kFree || seat_wanted_ > 0 || !busy) {
      background_wanted_.wait_for(lock, chrono(kForegroundGrace));
      continue;
    }
    seat_ = Seat::kBackground;
    while (!stopping_ && seat_wanted_ == 0) {
      start_submitted(lock);
      turn(lock, kNever);
    }
    seat_ = Seat::kFree;
    changed_.notify_all();
  }
}

}  // namespace railweave
