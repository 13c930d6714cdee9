// SPDX-License-Identifier: Apache-2.0
// An event loop that several threads share: one of them leads, which is to drive it, the others follow.
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

/// A thread that waits for something leads the loop itself, so that a result needs no hand-over between
/// threads; while nobody waits, a thread of the shared loop's own does, or always, on CPUs of its own. The
/// mutex is the client's and guards what the threads wait for.
class SharedLoop {
 public:
  /// What is done beside the handlers of events, by the leader and without the lock.
  class Client {
   public:
    virtual ~Client() = default;
    virtual void before_turn() = 0;  // what other threads have left to do
    virtual void after_turn() = 0;
    virtual void turn_failed(const std::exception& error) = 0;  // out of a handler, or one of the two
    /// Asked with the lock: whether the loop is to be driven at once although nobody waits.
    virtual bool busy() const = 0;
  };
  using Condition = std::function<bool()>;  // asked with the lock

  /// `loop` is this one's alone to drive from now on. The thread is called `name`.
  SharedLoop(EventLoop& loop, std::mutex& mutex, Client& client, const char* name = "railweave-loop");
  ~SharedLoop();
  SharedLoop(const SharedLoop&) = delete;
  SharedLoop& operator=(const SharedLoop&) = delete;

  /// From now on the loop's own thread leads also while others wait, on these CPUs alone, and looks for so
  /// long in each turn before it sleeps. std::invalid_argument for CPUs that this process may not use.
  void lead_on(const std::vector<int>& cpus, Duration spin);
  /// Runs `task` as the leader, and hands on what it throws. Not from inside the loop.
  void run(const std::function<void()>& task);
  /// Until `reached`; leads unless another thread does or `lead_on` was called, and then spins for so long in
  /// each turn.
  /// kInterrupted: a signal has come, or it is time to look for one; wait again.
  Outcome wait(std::unique_lock<std::mutex>& lock, const Condition& reached, Time latest, Duration spin = 0);
  /// The same for what only the leader may ask.
  Outcome wait_leading(std::unique_lock<std::mutex>& lock, const Condition& reached, Time latest);
  /// Has `before_turn` called: here and now, or soon by the thread that leads.
  void prompt(std::unique_lock<std::mutex>& lock);
  /// What threads wait for has changed. With the lock.
  void notify() { changed_.notify_all(); }

  /// Runs `task` as the leader and ends the thread of its own: nobody else leads in between. Once; whoever
  /// comes later waits for the end of it.
  void close(const std::function<void()>& task);
  /// Drives the loop until `reached`, for at most so long. From inside `run` or `close`.
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
  std::mutex& mutex_;  // guards what follows
  std::condition_variable changed_;
  std::condition_variable background_wanted_;
  Leader leader_ = Leader::kNone;
  int followers_ = 0;         // threads that wait to lead
  Time last_foreground_ = 0;  // when one has ceased to
  bool own_cpus_ = false;     // of the background thread
  Duration own_spin_ = 0;     // on them
  bool closing_ = false;
  bool stopping_ = false;
  bool closed_ = false;
  std::thread background_;
};

}  // namespace railweave
