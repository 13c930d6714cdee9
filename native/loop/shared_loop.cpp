// SPDX-License-Identifier: Apache-2.0
#include "loop/shared_loop.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "loop/thread.hpp"

namespace railweave {
namespace {

// A thread that got its result will soon make the next call. The background thread leaves the loop to it for
// this time, because taking the loop back would cost each call a hand-over. Peers may wait this long for an
// answer. RoCE's shortest timeout is 4 ms, and an acknowledgement may be delayed by 1 ms.
constexpr Duration kForegroundGrace = 2 * kMillisecond;
// Longest wait without a return, so that a Python thread can check its signals.
constexpr Duration kWaitSlice = 100 * kMillisecond;

auto chrono(Duration duration) { return std::chrono::nanoseconds(duration); }

}  // namespace

// A thread that wants to lead wakes the leader, which yields after its turn.
class SharedLoop::Lead {
 public:
  Lead(SharedLoop& loop, std::unique_lock<std::mutex>& lock, Leader as = Leader::kForeground)
      : loop_(loop), lock_(lock) {
    ++loop.followers_;
    if (loop.leader_ != Leader::kNone) loop.loop_.wake();
    loop.changed_.wait(lock, [&loop] { return loop.leader_ == Leader::kNone; });
    --loop.followers_;
    loop.leader_ = as;
  }
  ~Lead() {
    if (!lock_.owns_lock()) lock_.lock();
    const bool foreground = std::exchange(loop_.leader_, Leader::kNone) == Leader::kForeground;
    loop_.changed_.notify_all();
    if (!foreground) return;
    loop_.last_foreground_ = EventLoop::now();
    if (loop_.own_cpus_ || loop_.client_.busy()) loop_.background_wanted_.notify_one();
  }
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

 private:
  SharedLoop& loop_;
  std::unique_lock<std::mutex>& lock_;
};

// The leading thread is arbitrary. An exception goes to the client, not to that thread, and ends the client.
template <typename Step>
void SharedLoop::guarded(const Step& step) {
  try {
    step();
  } catch (const std::exception& error) {
    client_.turn_failed(error);
  }
}

SharedLoop::SharedLoop(EventLoop& loop, std::mutex& mutex, Client& client, const char* name)
    : loop_(loop), client_(client), mutex_(mutex) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // only the program's own threads handle signals
  background_ = std::thread([this] { work_in_background(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(background_.native_handle(), name);
}

SharedLoop::~SharedLoop() {
  close([] {});
}

void SharedLoop::lead_on(const std::vector<int>& cpus, Duration spin) {
  run_on(background_.native_handle(), cpus);
  std::unique_lock lock(mutex_);
  const Lead lead(*this, lock);  // the background thread reads these settings at the start of a turn
  own_cpus_ = true;
  own_spin_ = spin;
}

void SharedLoop::run(const std::function<void()>& task) {
  std::unique_lock lock(mutex_);
  const Lead lead(*this, lock);
  lock.unlock();
  task();
  guarded([this] { client_.after_turn(); });
}

void SharedLoop::prompt(std::unique_lock<std::mutex>& lock) {
  if (own_cpus_ || leader_ != Leader::kNone) return loop_.wake();
  const Lead lead(*this, lock);
  lock.unlock();
  guarded([this] { client_.before_turn(); });
}

Outcome SharedLoop::wait(std::unique_lock<std::mutex>& lock, const Condition& reached, Time latest,
                         Duration spin) {
  return wait(lock, reached, false, latest, spin);
}

Outcome SharedLoop::wait_leading(std::unique_lock<std::mutex>& lock, const Condition& reached, Time latest) {
  return wait(lock, reached, true, latest, 0);
}

Outcome SharedLoop::wait(std::unique_lock<std::mutex>& lock, const Condition& reached, bool as_leader,
                         Time latest, Duration spin) {
  const auto known = [&] { return !as_leader && reached(); };
  while (!known()) {
    if (can_lead(as_leader)) {
      const Lead lead(*this, lock);
      const Outcome outcome = drive(lock, reached, latest, spin);
      if (outcome != Outcome::kDone || reached()) return outcome;
      continue;
    }
    loop_.wake();  // the leader may still have to start this thread's call
    const Duration left = std::min(kWaitSlice, latest - EventLoop::now());
    if (!changed_.wait_for(lock, chrono(left), [&] { return known() || can_lead(as_leader); }))
      return EventLoop::now() >= latest ? Outcome::kTimeout : Outcome::kInterrupted;
  }
  return Outcome::kDone;
}

// Leads for at most kWaitSlice. kDone may also mean that another thread wants to lead.
Outcome SharedLoop::drive(std::unique_lock<std::mutex>& lock, const Condition& reached, Time latest,
                          Duration spin) {
  const Time slice_end = EventLoop::now() + kWaitSlice;
  while (!reached() && followers_ == 0) {
    if (turn(lock, reached, std::min(latest, slice_end), spin)) return Outcome::kInterrupted;
    const Time now = EventLoop::now();
    if (!reached() && now >= latest) return Outcome::kTimeout;
    if (!reached() && now >= slice_end) return Outcome::kInterrupted;
  }
  return Outcome::kDone;
}

void SharedLoop::turn_until(const Condition& reached, Time latest) {
  std::unique_lock lock(mutex_);
  while (!reached() && EventLoop::now() < latest) turn(lock, reached, latest);
}

// Returns true if a signal ended the turn early. Does not sleep if `before_turn` already completed the work.
bool SharedLoop::turn(std::unique_lock<std::mutex>& lock, const Condition& reached, Time latest,
                      Duration spin) {
  lock.unlock();
  guarded([this] { client_.before_turn(); });
  lock.lock();
  if (reached()) latest = 0;
  lock.unlock();
  bool interrupted = false;
  guarded([&] {
    interrupted = loop_.run_once(latest, spin);
    client_.after_turn();
  });
  lock.lock();
  return interrupted;
}

void SharedLoop::work_in_background() {
  const Condition never = [] { return false; };
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Duration grace = last_foreground_ + kForegroundGrace - EventLoop::now();
    const bool wanted = own_cpus_ || client_.busy() || grace <= 0;
    const bool taken = leader_ != Leader::kNone || followers_ > 0;
    if (taken || !wanted) {
      background_wanted_.wait_for(lock, chrono(taken ? kForegroundGrace : grace));
      continue;
    }
    const Lead lead(*this, lock, Leader::kBackground);
    while (!stopping_ && followers_ == 0) turn(lock, never, kNever, own_spin_);
  }
}

void SharedLoop::close(const std::function<void()>& task) {
  std::unique_lock lock(mutex_);
  if (std::exchange(closing_, true)) return changed_.wait(lock, [this] { return closed_; });
  {
    const Lead lead(*this, lock);
    lock.unlock();
    guarded(task);
    lock.lock();
    stopping_ = true;
  }
  lock.unlock();
  background_wanted_.notify_one();
  background_.join();
  lock.lock();
  closed_ = true;
  changed_.notify_all();
}

}  // namespace railweave
