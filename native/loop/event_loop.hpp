// SPDX-License-Identifier: Apache-2.0
// Where a process touches sockets: epoll, deadlines and work posted from other threads.
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

/// Told when a watched descriptor is ready. `events` are epoll's.
class ReadyHandler {
 public:
  virtual ~ReadyHandler() = default;
  virtual void on_ready(std::uint32_t events, Time now) = 0;
};

/// Something with a deadline: a rail, a heartbeat.
class Timed {
 public:
  virtual ~Timed() = default;
  virtual Time deadline() const = 0;
  virtual void expire(Time now) = 0;
};

/// Has handlers and timers on a loop. What one of them throws stays with the owner.
class HandlerOwner {
 public:
  virtual ~HandlerOwner() = default;
  /// A handler, a timer or a posted task has thrown. The loop has suspended the owner.
  virtual void handler_failed(const std::exception& error, Time now) = 0;

 private:
  friend class EventLoop;
  bool suspended_ = false;
};

/// One thread at a time drives the loop, with `run` or `run_once`; that one is "the loop's thread", and only
/// it calls handlers. `post`, `wake` and `stop` may be called from any thread, everything else from the
/// loop's thread only.
class EventLoop {
 public:
  /// `owner`, if not null, owns all that is registered outside of `Owned`.
  explicit EventLoop(HandlerOwner* owner = nullptr);
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  static Time now();  // CLOCK_MONOTONIC

  /// While it exists, `owner` owns what is registered. What a handler registers belongs to its own owner.
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
  /// Throws std::system_error and leaves the owner suspended where a descriptor cannot be watched.
  void resume(HandlerOwner& owner);

  void watch(int fd, std::uint32_t events, ReadyHandler& handler);
  // Without effect where `fd` is not watched; safe inside a handler, also for events already fetched.
  void rewatch(int fd, std::uint32_t events, ReadyHandler& handler);
  void unwatch(int fd);  // before the descriptor is closed

  void add_timed(Timed& timed);
  void remove_timed(Timed& timed);  // safe inside `expire`

  void post(std::function<void()> task, HandlerOwner* owner = nullptr);
  void run_posted();  // now, what waits
  void wake();        // makes a sleeping `run_once` return
  void stop();

  void run();  // until stop()
  /// Sleeps until something happens, at most until `latest`, and handles it. For the first `spin` it looks
  /// again and again instead, and lets others have the processor in between: who sleeps wakes up late, and
  /// with cold caches. True if a signal cut the sleep
  /// short. If a handler without an owner throws, the exception comes out of here, and that handler is not
  /// called again: what it could not handle would wake the loop for ever.
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
  Time timer_at_ = 0;  // when the timer fires or has fired
  std::atomic<bool> stopping_{false};
  std::atomic<bool> woken_{false};  // the eventfd has been written and not read yet
  std::mutex mutex_;
  std::vector<Task> posted_;    // guarded by mutex_
  std::vector<Timer> timed_;    // with nullptr: removed while expire_due walks over it
  std::vector<Watch> watches_;  // by descriptor
  HandlerOwner* owner_;         // of what is registered now
};

}  // namespace railweave
