// SPDX-License-Identifier: Apache-2.0
// An event loop that several threads share. One thread leads, that is, drives the loop; the others follow.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "loop/event_loop.hpp"

namespace railweave {

enum class Outcome { kDone, kTimeout, kInterrupted };

/// A waiting thread leads the loop itself, so its result needs no hand-over between threads. While no thread
/// waits, a background thread leads. After `lead_on` the background thread always leads. The mutex is the
/// client's and guards the state that threads wait for.
class SharedLoop {
 public:
  /// Work of each turn besides the handlers of events. The leader calls it without the lock.
  class Client {
   public:
    virtual ~Client() = default;
    virtual void before_turn() = 0;  // starts work that other threads have left
    virtual void after_turn() = 0;
    virtual void turn_failed(const std::exception& error) = 0;  // a handler or one of the two methods threw
    /// Called with the lock: whether the loop needs a leader at once although no thread waits.
    virtual bool busy() const = 0;
  };
  using Condition = std::function<bool()>;  // called with the lock

  /// From now on only this object drives `loop`. `name` is the name of the background thread.
  SharedLoop(EventLoop& loop, std::mutex& mutex, Client& client, const char* name = "railweave-loop");
  ~SharedLoop();
  SharedLoop(const SharedLoop&) = delete;
  SharedLoop& operator=(const SharedLoop&) = delete;

  /// From now on the background thread always leads, also while threads wait. It runs on these CPUs only and
  /// polls for `spin` in each turn before it sleeps. Throws std::invalid_argument for CPUs that this process
  /// may not use.
  void lead_on(const std::vector<int>& cpus, Duration spin);
  /// Runs `task` as the leader and rethrows its exception. Must not be called inside the loop.
  void run(const std::function<void()>& task);
  /// Waits until `reached`. This thread leads unless another one does or `lead_on` was called, and polls for
  /// `spin` in each turn. kInterrupted: a signal may have come; check signals and wait again.
  Outcome wait(std::unique_lock<std::mutex>& lock, const Condition& reached, Time latest, Duration spin = 0);
  /// The same for a condition that only the leader may check.
  Outcome wait_leading(std::unique_lock<std::mutex>& lock, const Condition& reached, Time latest);
  /// Lets the leader call `before_turn` soon, or calls it here if no thread leads.
  void prompt(std::unique_lock<std::mutex>& lock);
  /// Says that the state has changed for which threads wait. Called with the lock.
  void notify() { changed_.notify_all(); }

  /// Runs `task` as the leader and ends the background thread. No other thread leads in between. Later calls
  /// only wait for the end of the first call.
  void close(const std::function<void()>& task);
  /// Drives the loop until `reached`, at most until `latest`. Call it inside `run` or `close`.
  void turn_until(const Condition& reached, Time latest);

 private:
  enum class Leader { kNone, kBackground, kForeground };
  class Lead;  // leads while it exists

  void work_in_background();
  bool can_lead(bool as_leader) const {
    return leader_ != Leader::kForeground && followers_ == 0 && (as_leader || !own_cpus_);
  }
  Outcome wait(std::unique_lock<std::mutex>& lock, const Condition& reached, bool as_leader, Time latest,
               Duration spin);
  Outcome drive(std::unique_lock<std::mutex>& lock, const Condition& reached, Time latest, Duration spin);
  bool turn(std::unique_lock<std::mutex>& lock, const Condition& reached, Time latest, Duration spin = 0);
  template <typename Step>
  void guarded(const Step& step);

  EventLoop& loop_;
  Client& client_;
  std::mutex& mutex_;  // guards the members below
  std::condition_variable changed_;
  std::condition_variable background_wanted_;
  Leader leader_ = Leader::kNone;
  int followers_ = 0;         // threads that wait to lead
  Time last_foreground_ = 0;  // when a foreground thread last stopped leading
  bool own_cpus_ = false;     // the background thread has its own CPUs
  Duration own_spin_ = 0;     // `spin` of lead_on
  bool closing_ = false;
  bool stopping_ = false;
  bool closed_ = false;
  std::thread background_;
};

}  // namespace railweave
