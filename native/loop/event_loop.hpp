// SPDX-License-Identifier: Apache-2.0
// The one thread of a process that touches sockets: epoll, deadlines and work posted from other threads.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

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

/// `post` and `stop` may be called from any thread; everything else on the thread that runs the loop, or before it runs.
class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  static Time now();  // CLOCK_MONOTONIC

  void watch(int fd, std::uint32_t events, ReadyHandler& handler);
  void rewatch(int fd, std::uint32_t events, ReadyHandler& handler);
  void unwatch(int fd);  // safe inside a handler, also for descriptors whose events are already fetched

  void add_timed(Timed& timed);
  void remove_timed(Timed& timed);

  void post(std::function<void()> task);
  void run();   // until stop()
  void stop();

 private:
  void run_posted();
  int wait_ms(Time now) const;

  int epoll_fd_;
  int wake_fd_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // guarded by mutex_
  std::vector<Timed*> timed_;
  struct Watch;
  std::vector<Watch> watches_;
};

}  // namespace railweave
