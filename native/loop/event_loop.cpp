// SPDX-License-Identifier: Apache-2.0
#include "loop/event_loop.hpp"

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace railweave {
namespace {

constexpr int kEventsPerRound = 64;
constexpr std::uint64_t kWakeTag = ~std::uint64_t{0};
constexpr std::uint64_t kTimerTag = kWakeTag - 1;
// A deadline this near, for example of pacing, is not worth a system call to set the timer.
constexpr Duration kSoon = kMillisecond;

timespec timespec_of(Duration duration) {
  return {.tv_sec = duration / kSecond, .tv_nsec = duration % kSecond};
}

}  // namespace

EventLoop::EventLoop(HandlerOwner* owner)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      owner_(owner) {
  epoll_event woken{.events = EPOLLIN, .data = {.u64 = kWakeTag}};
  epoll_event timed{.events = EPOLLIN | EPOLLET, .data = {.u64 = kTimerTag}};  // wakes once; never read
  if (!epoll_ || !wake_ || !timer_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &woken) < 0 ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &timed) < 0)
    raise_errno("epoll");
}

Time EventLoop::now() {
  timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * kSecond + at.tv_nsec;
}

// Asks the kernel first: if it refuses, nothing is registered.
void EventLoop::watch(int fd, std::uint32_t events, ReadyHandler& handler) {
  if (watches_.size() <= static_cast<std::size_t>(fd)) watches_.resize(fd + 1);
  if (!suspended(owner_)) control(EPOLL_CTL_ADD, fd, events);
  Watch& watch = watches_[fd];
  watch.handler = &handler;
  watch.events = events;
  watch.owner = owner_;
}

void EventLoop::rewatch(int fd, std::uint32_t events, ReadyHandler& handler) {
  Watch& watch = watches_.at(fd);
  if (watch.handler == nullptr) return;
  watch.handler = &handler;
  watch.events = events;
  if (!suspended(watch.owner)) control(EPOLL_CTL_MOD, fd, events);
}

void EventLoop::unwatch(int fd) {
  Watch& watch = watches_.at(fd);
  if (watch.handler == nullptr) return;
  watch.handler = nullptr;
  ++watch.generation;  // events fetched earlier carry the old number
  if (!suspended(watch.owner)) control(EPOLL_CTL_DEL, fd, 0);
}

void EventLoop::suspend(HandlerOwner& owner) {
  if (std::exchange(owner.suspended_, true)) return;
  for (std::size_t fd = 0; fd < watches_.size(); ++fd) {
    if (watches_[fd].handler == nullptr || watches_[fd].owner != &owner) continue;
    ++watches_[fd].generation;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, static_cast<int>(fd), nullptr);
  }
}

void EventLoop::resume(HandlerOwner& owner) {
  if (!std::exchange(owner.suspended_, false)) return;
  try {
    for (std::size_t fd = 0; fd < watches_.size(); ++fd) {
      if (watches_[fd].handler != nullptr && watches_[fd].owner == &owner)
        control(EPOLL_CTL_ADD, static_cast<int>(fd), watches_[fd].events);
    }
  } catch (...) {
    suspend(owner);
    throw;
  }
}

void EventLoop::control(int operation, int fd, std::uint32_t events) {
  const std::uint64_t tag = std::uint64_t{watches_.at(fd).generation} << 32 | static_cast<std::uint32_t>(fd);
  epoll_event event{.events = events, .data = {.u64 = tag}};
  if (epoll_ctl(epoll_.get(), operation, fd, &event) < 0) raise_errno("epoll_ctl");
}

void EventLoop::add_timed(Timed& timed) { timed_.push_back({.timed = &timed, .owner = owner_}); }

void EventLoop::remove_timed(Timed& timed) {
  for (Timer& timer : timed_) {
    if (timer.timed == &timed) timer.timed = nullptr;
  }
}

void EventLoop::post(std::function<void()> task, HandlerOwner* owner) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back({.run = std::move(task), .owner = owner});
  }
  wake();
}

void EventLoop::wake() {
  if (woken_.exchange(true)) return;
  const std::uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof one) < 0 && errno != EAGAIN) raise_errno("eventfd");
}

void EventLoop::stop() {
  stopping_ = true;
  wake();
}

void EventLoop::run() {
  while (!stopping_) run_once(kNever);
}

bool EventLoop::run_once(Time latest, Duration spin) {
  epoll_event events[kEventsPerRound];
  const Time due = next_deadline();
  const int fetched = sleep(events, kEventsPerRound, std::min(latest, due), spin);
  const bool interrupted = fetched < 0 && errno == EINTR;
  if (fetched < 0 && !interrupted) raise_errno("epoll_wait");
  const Time time = now();
  for (int i = 0; i < fetched; ++i) dispatch(events[i], time);
  if (time >= due) expire_due(time);  // deadlines that these events caused are found before the next sleep
  run_posted();
  return interrupted;
}

// A timeout in epoll_pwait2 sets and clears a kernel timer at every sleep, in a virtual machine often through
// the hypervisor. Most deadlines only move later than the timer's time. The timer then wakes the loop once
// too early.
int EventLoop::sleep(epoll_event* events, int capacity, Time until, Duration spin) {
  constexpr timespec kNoTime{};
  for (const Time end = spin > 0 ? std::min(until, now() + spin) : 0; spin > 0 && now() < end;
       sched_yield()) {
    const int fetched = epoll_pwait2(epoll_.get(), events, capacity, &kNoTime, nullptr);
    if (fetched != 0) return fetched;
  }
  const Time now = EventLoop::now();
  const bool timed = until == kNever || (timer_at_ > now && timer_at_ <= until);
  if (!timed && until <= now + kSoon) {
    const timespec timeout = timespec_of(std::max<Duration>(0, until - now));
    return epoll_pwait2(epoll_.get(), events, capacity, &timeout, nullptr);
  }
  if (!timed) set_timer(until);
  return epoll_pwait2(epoll_.get(), events, capacity, nullptr, nullptr);
}

void EventLoop::set_timer(Time at) {
  const itimerspec once{.it_interval = {}, .it_value = timespec_of(at)};
  if (timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &once, nullptr) < 0) raise_errno("timerfd");
  timer_at_ = at;
}

void EventLoop::dispatch(const epoll_event& event, Time now) {
  if (event.data.u64 == kTimerTag) return;
  if (event.data.u64 == kWakeTag) {
    std::uint64_t count;
    [[maybe_unused]] const auto size = read(wake_.get(), &count, sizeof count);
    woken_ = false;
    return;
  }
  const auto fd = static_cast<int>(event.data.u64 & 0xffffffff);
  const auto [handler, generation, events, owner] = watches_[fd];
  if (handler == nullptr || generation != event.data.u64 >> 32) return;
  call(
      owner, now, [&] { handler->on_ready(event.events, now); },
      [&] {
        if (watches_[fd].generation == generation) unwatch(fd);
      });
}

// Exceptions go to the owner. Without an owner the handler is dropped and the exception passes through.
template <typename Step, typename Drop>
void EventLoop::call(HandlerOwner* owner, Time now, const Step& step, const Drop& drop) {
  const Owned owned(*this, owner);
  try {
    step();
  } catch (const std::exception& error) {
    if (owner == nullptr) {
      drop();
      throw;
    }
    suspend(*owner);
    owner->handler_failed(error, now);
  }
}

Time EventLoop::next_deadline() const {
  Time next = kNever;
  for (const auto& [timed, owner] : timed_) {
    if (timed != nullptr && !suspended(owner)) next = std::min(next, timed->deadline());
  }
  return next;
}

void EventLoop::expire_due(Time now) {
  for (std::size_t i = 0; i < timed_.size(); ++i) {  // by index: `expire` may add
    const auto [timed, owner] = timed_[i];
    if (timed == nullptr || suspended(owner) || timed->deadline() > now) continue;
    call(owner, now, [&] { timed->expire(now); }, [&] { timed_[i].timed = nullptr; });
  }
  std::erase_if(timed_, [](const Timer& timer) { return timer.timed == nullptr; });
}

void EventLoop::run_posted() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(posted_);
  }
  for (const auto& [run, owner] : tasks) {
    if (!suspended(owner)) call(owner, now(), run, [] {});
  }
}

}  // namespace railweave
