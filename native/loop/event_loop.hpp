// SPDX-License-Identifier: Apache-2.0
// The event loop of a process: epoll, deadlines, and tasks from other threads.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "core/descriptor.hpp"
#include "core/time.hpp"

namespace railweave {

/// Called when a watched descriptor is ready. `events` are epoll's.
class ReadyHandler {
 public:
  virtual ~ReadyHandler() = default;
  virtual void on_ready(std::uint32_t events, Time now) = 0;
};

/// An object with a deadline, such as a rail or a heartbeat.
class Timed {
 public:
  virtual ~Timed() = default;
  virtual Time deadline() const = 0;
  virtual void expire(Time now) = 0;
};

/// Owns handlers and timers on a loop, and receives their exceptions.
class HandlerOwner {
 public:
  virtual ~HandlerOwner() = default;
  /// A handler, a timer or a posted task has thrown. The loop has already suspended the owner.
  virtual void handler_failed(const std::exception& error, Time now) = 0;

 private:
  friend class EventLoop;
  bool suspended_ = false;
};

/// One thread at a time drives the loop with `run` or `run_once`: the loop's thread. Only this thread calls
/// handlers. Any thread may call `post`, `wake` and `stop`; all other methods are for the loop's thread.
class EventLoop {
 public:
  /// `owner` owns everything that is registered without an `Owned`; it may be null.
  explicit EventLoop(HandlerOwner* owner = nullptr);
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  static Time now();  // CLOCK_MONOTONIC

  /// Registrations belong to `owner` while this object exists. Registrations by a handler belong to its
  /// owner.
  class Owned {
   public:
    Owned(EventLoop& loop, HandlerOwner* owner) : loop_(loop), before_(std::exchange(loop.owner_, owner)) {}
    ~Owned() { loop_.owner_ = before_; }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;

   private:
    EventLoop& loop_;
    HandlerOwner* const before_;
  };
  HandlerOwner* owner() const { return owner_; }
  /// Calls no handler, timer or posted task of the owner until `resume`.
  void suspend(HandlerOwner& owner);
  /// Throws std::system_error if a descriptor cannot be watched. The owner then stays suspended.
  void resume(HandlerOwner& owner);

  void watch(int fd, std::uint32_t events, ReadyHandler& handler);
  // No effect if `fd` is not watched. Safe inside a handler, also for events that are already fetched.
  void rewatch(int fd, std::uint32_t events, ReadyHandler& handler);
  void unwatch(int fd);  // before the descriptor is closed

  void add_timed(Timed& timed);
  void remove_timed(Timed& timed);  // safe inside `expire`

  void post(std::function<void()> task, HandlerOwner* owner = nullptr);
  void run_posted();  // runs the waiting tasks now
  void wake();        // makes a sleeping `run_once` return
  void stop();

  void run();  // until stop()
  /// Sleeps until an event, at most until `latest`, and handles it. Returns true if a signal ended the sleep.
  /// For the first `spin` it polls and yields the processor in between, because a sleeping thread wakes up
  /// late and with cold caches. If a handler without an owner throws, this method rethrows. The handler is
  /// then removed, because its unhandled event would wake the loop again and again.
  bool run_once(Time latest, Duration spin = 0);

 private:
  struct Watch {
    ReadyHandler* handler = nullptr;
    std::uint32_t generation = 0;
    std::uint32_t events = 0;
    HandlerOwner* owner = nullptr;
  };
  struct Timer {
    Timed* timed;
    HandlerOwner* owner;
  };
  struct Task {
    std::function<void()> run;
    HandlerOwner* owner;
  };

  static bool suspended(const HandlerOwner* owner) { return owner != nullptr && owner->suspended_; }
  template <typename Step, typename Drop>
  void call(HandlerOwner* owner, Time now, const Step& step, const Drop& drop);
  void control(int operation, int fd, std::uint32_t events);
  void dispatch(const epoll_event& event, Time now);
  void expire_due(Time now);
  Time next_deadline() const;
  int sleep(epoll_event* events, int capacity, Time until, Duration spin);
  void set_timer(Time at);

  Descriptor epoll_, wake_, timer_;
  Time timer_at_ = 0;  // time for which the timer is set; may be past
  std::atomic<bool> stopping_{false};
  std::atomic<bool> woken_{false};  // the eventfd has been written and not read yet
  std::mutex mutex_;
  std::vector<Task> posted_;    // guarded by mutex_
  std::vector<Timer> timed_;    // nullptr: removed during expire_due
  std::vector<Watch> watches_;  // by descriptor
  HandlerOwner* owner_;         // of new registrations
};

}  // namespace railweave
