// SPDX-License-Identifier: Apache-2.0
// Who drives an agent's loop: the thread that waits, or else one of its own.
#include <algorithm>
#include <chrono>
#include <exception>

#include "agent/agent.hpp"

namespace railweave {
namespace {

// A thread that has got its result comes back with the next call soon. For so long the loop is left to it:
// fetching the loop back from the background thread would cost each call a hand-over. Peers wait at most so
// long for an answer.
constexpr Duration kForegroundGrace = 5 * kMillisecond;
// A wait is cut into pieces of this length, so that a Python thread gets to look at its signals.
constexpr Duration kWaitSlice = 100 * kMillisecond;

auto chrono(Duration duration) { return std::chrono::nanoseconds(duration); }

}  // namespace

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
  if (calls_.pending_calls() > 0) background_wanted_.notify_one();
}

void Agent::on_loop(const std::function<void()>& task) {
  std::unique_lock lock(mutex_);
  take_seat(lock);
  lock.unlock();
  std::exception_ptr thrown;
  try {
    task();
    if (recovery_) recovery_->pump(EventLoop::now());
  } catch (...) {
    thrown = std::current_exception();
  }
  lock.lock();
  leave_seat();
  lock.unlock();
  if (thrown) std::rethrow_exception(thrown);
}

Outcome Agent::wait_until(const Reached& reached, Time latest) {
  std::unique_lock lock(mutex_);
  take_seat(lock);
  const Outcome outcome = drive(lock, [&] { return failure_.has_value() || reached(); }, latest);
  leave_seat();
  return outcome;
}

// Called with the lock, which guards what `reached` looks at; drives the loop unless another thread does.
Outcome Agent::wait_for(std::unique_lock<std::mutex>& lock, const Reached& reached, Time latest) {
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

// Holds the seat for at most a slice of time. kDone also means that another thread wants the seat: look
// again.
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

void Agent::linger_until(std::unique_lock<std::mutex>& lock, const Reached& reached, Time latest) {
  while (!reached() && EventLoop::now() < latest) turn(lock, latest);
}

// True if a signal cut the turn short.
bool Agent::turn(std::unique_lock<std::mutex>& lock, Time latest) {
  lock.unlock();
  bool interrupted = false;
  try {
    interrupted = loop_.run_once(latest);
    if (recovery_) recovery_->pump(EventLoop::now());
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
    const bool busy = calls_.pending_calls() > 0 || grace <= 0;
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
