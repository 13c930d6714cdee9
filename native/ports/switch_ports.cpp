// SPDX-License-Identifier: Apache-2.0
#include "ports/switch_ports.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>

#include "core/segments.hpp"

namespace railweave::ports {

namespace {

constexpr std::uint64_t kWakeKey = ~std::uint64_t{0};
constexpr std::uint64_t kLinksKey = kWakeKey - 1;
constexpr std::uint64_t kTimerKey = kWakeKey - 2;
constexpr int kRetryMs = 1;   // a full queueing discipline drains 125 kB in this time at 1 Gbit/s
constexpr int kSharedMs = 1;  // interval between checks of shared links, which give no events
constexpr Duration kSpin = 50 * kMicrosecond;     // polls for packets for this time before it sleeps
constexpr Duration kGivenBack = kMillisecond;     // if a yield takes longer than this, the core is busy
constexpr Duration kNoSpin = 100 * kMillisecond;  // the thread then only sleeps for this time
constexpr unsigned kTurns = ReceiveBatch::kFrames / 2;
constexpr std::size_t kMaxInjected = 1024;

std::uint64_t now_us() { return static_cast<std::uint64_t>(now<std::chrono::steady_clock>() / kMicrosecond); }

Descriptor checked(int fd, const char* what) {
  if (fd < 0) raise_errno(what);
  return Descriptor(fd);
}

}  // namespace

SwitchPorts::SwitchPorts(const std::vector<Interface>& interfaces, const OutputLimits& limits)
    : start_us_(now_us()),
      priority_queues_(limits.priority_queues),
      epoll_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll")),
      wake_(checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      timer_(checked(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "timerfd")) {
  if (priority_queues_ < 1 || priority_queues_ > kMaxPriorityQueues) {
    throw std::invalid_argument("a port has 1 to " + std::to_string(kMaxPriorityQueues) + " queues, not " +
                                std::to_string(priority_queues_));
  }
  for (const auto& [number, name] : interfaces) {
    const bool taken = std::any_of(ports_.begin(), ports_.end(), [&](const auto& port) {
      return port->number() == number || port->interface() == name;
    });
    if (taken) throw std::invalid_argument("port " + std::to_string(number) + "@" + name + " is given twice");
    ports_.push_back(std::make_unique<Port>(number, name, limits));
    ports_.back()->open();
    if (by_number_.size() <= number) by_number_.resize(number + 1u);
    by_number_[number] = ports_.back().get();
    if (ports_.back()->shared()) shared_.push_back(by_number_[number]);
  }
  bool watched = watch(wake_.get(), EPOLLIN, kWakeKey, EPOLL_CTL_ADD) &&
                 watch(timer_.get(), EPOLLIN, kTimerKey, EPOLL_CTL_ADD) &&
                 watch(links_.fd(), EPOLLIN, kLinksKey, EPOLL_CTL_ADD);
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    watched = watched && (ports_[i]->shared() || watch(ports_[i]->fd(), EPOLLIN, i, EPOLL_CTL_ADD));
  }
  if (!watched) raise_errno("epoll_ctl");
}

bool SwitchPorts::watch(int fd, std::uint32_t events, std::uint64_t key, int operation) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

void SwitchPorts::start() {
  if (thread_.joinable()) return;
  stopping_ = false;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "railweave-ports");
}

void SwitchPorts::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  wake();
  thread_.join();
}

void SwitchPorts::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
}

void SwitchPorts::set_engine(engine::Engine* engine, int notices) {
  const std::lock_guard guard(engine_mutex_);
  // With other programs, packets wait in the kernel, whose queues are longer.
  const bool queues = engine != nullptr && (engine->uses_backlog() || priority_queues_ > 1);
  if (engine != nullptr) {
    const auto state = engine->control();
    state->start_us = start_us_;
    state->priority_queues = priority_queues_;
    state->egress_queues = queues;
  }
  for (const auto& port : ports_) {
    port->holds = false;
    port->limit_kernel_queue(queues);
  }
  engine_ = engine;
  notices_ = notices;
  injected_.clear();  // meant for the previous engine
}

bool SwitchPorts::inject(std::uint16_t port, Bytes packet) {
  {
    const std::lock_guard guard(engine_mutex_);
    if (injected_.size() >= kMaxInjected) return false;
    injected_.push_back({port, {packet.begin(), packet.end()}});
  }
  wake();
  return true;
}

void SwitchPorts::run_injected() {
  const std::lock_guard guard(engine_mutex_);
  if (engine_ != nullptr && !injected_.empty()) {
    const auto lock = engine_->traffic();
    const std::uint64_t now = now_us();
    for (const Injected& one : injected_) engine_->process(one.port, one.packet, now, *this);
  }
  injected_.clear();
}

Port* SwitchPorts::find(std::uint16_t number) const {
  return number < by_number_.size() ? by_number_[number] : nullptr;
}

Path& SwitchPorts::path(std::uint16_t port, Direction direction) {
  Port* const found = find(port);
  if (found == nullptr) throw std::out_of_range("there is no port " + std::to_string(port));
  return found->path(direction);
}

void SwitchPorts::impair(std::uint16_t port, Direction direction,
                         const std::optional<Impairment>& impairment) {
  {
    const std::lock_guard guard(engine_mutex_);
    path(port, direction).link = impairment ? std::make_unique<ImpairedLink>(*impairment) : nullptr;
    impaired_ = std::any_of(ports_.begin(), ports_.end(),
                            [](const auto& one) { return one->in.link || one->out.link; });
  }
  wake();
}

std::optional<ImpairmentCounts> SwitchPorts::impairment_counts(std::uint16_t port, Direction direction) {
  const std::lock_guard guard(engine_mutex_);
  const Path& of = path(port, direction);
  return of.link ? std::optional(of.link->counts()) : std::nullopt;
}

void SwitchPorts::capture(std::uint16_t port, Direction direction, const std::string& file) {
  auto next = file.empty() ? nullptr : std::make_unique<Capture>(file);
  const std::lock_guard guard(engine_mutex_);
  path(port, direction).capture = std::move(next);
}

void SwitchPorts::process(Port& port, MutableBytes packet, std::uint64_t now_us) {
  if (port.in.capture) port.in.capture->add(packet, now<std::chrono::system_clock>());
  if (engine_ != nullptr) {
    engine_->process(port.number(), packet, now_us, *this);
  } else {
    without_program_.add(1);
  }
}

engine::OutputBacklog SwitchPorts::backlog(std::uint16_t number, std::size_t priority) const {
  const Port* port = find(number);
  if (port == nullptr) return {};
  if (!port->out.link) return {port->waiting_packets(priority), 0};
  const Time at = now<std::chrono::steady_clock>();
  return {static_cast<std::uint32_t>(port->out.link->backlog(at, priority)),
          static_cast<std::uint64_t>(port->out.link->wait(at, priority) / kMicrosecond)};
}

bool SwitchPorts::ready(std::uint16_t number) {
  Port* port = find(number);
  if (port == nullptr || port->out.link || !(port->waiting || port->retry || port->holds)) return true;
  port->holds = true;
  return false;
}

bool SwitchPorts::readable() const {
  return std::any_of(shared_.begin(), shared_.end(), [](const Port* port) { return port->readable(); });
}

void SwitchPorts::noticed() {
  const std::uint64_t one = 1;
  if (notices_ >= 0) [[maybe_unused]]
    const auto written = write(notices_, &one, sizeof one);
}

// Waking a thread on a halted core costs a sender about 20 us on a virtual machine. So this thread polls
// while packets come at short intervals, and yields in between. If other threads keep the core after a yield,
// the core is busy and does not halt. The thread then sleeps, because a sleeping thread gets a busy core
// earlier.
int SwitchPorts::wait(Events& events, int timeout_ms) {
  const auto look = [&](int timeout) {
    return epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
  };
  if (timeout_ms == 0) return look(0);
  if (!shared_.empty()) timeout_ms = kSharedMs;
  const Time begun = now<std::chrono::steady_clock>();
  Duration waited = 0;
  int count = 0;
  const bool spins = interval_ < kSpin && begun >= spin_from_;
  if (spins) {
    while ((count = look(0)) == 0 && !readable() && waited < kSpin) {
      sched_yield();
      waited = now<std::chrono::steady_clock>() - begun;
    }
    if (waited > kGivenBack) spin_from_ = begun + waited + kNoSpin;
  }
  if (count == 0 && !(spins && readable())) count = look(readable() ? 0 : timeout_ms);
  waited = now<std::chrono::steady_clock>() - begun;
  interval_ += (std::min(waited, 4 * kSpin) - interval_) / 8;
  return count;
}

void SwitchPorts::run() {
  Events events;
  unsigned turns = 0;  // since the last flush
  while (!stopping_) {
    const int timeout_ms = turns != 0 ? 0 : retry_at_us_ != 0 ? kRetryMs : -1;
    const int count = wait(events, timeout_ms);
    bool links_changed = false, cut = false;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t key = events[i].data.u64;
      if (key == kWakeKey || key == kTimerKey) {
        std::uint64_t ignored;
        [[maybe_unused]] const auto size =
            read((key == kWakeKey ? wake_ : timer_).get(), &ignored, sizeof ignored);
        if (key == kWakeKey) run_injected();
        continue;
      }
      if (key == kLinksKey) {
        links_changed = true;
        continue;
      }
      Port& port = *ports_[key];
      if (events[i].events & EPOLLERR) port.clear_error();
      if (events[i].events & EPOLLOUT) flush(port);
      if (events[i].events & EPOLLIN) cut |= receive(port);
    }
    for (Port* port : shared_) {
      if (port->readable()) receive(*port);
    }
    release_due();
    // Ports take turns with batches that fit in the cache. The output of one round leaves together.
    turns = cut ? (turns + 1) % kTurns : 0;
    if (turns == 0) flush_all();
    // Comes last, because it may close sockets with events in this round.
    if (links_changed) handle_links();
  }
}

/// Returns whether more frames may wait because the batch was limited by bytes.
bool SwitchPorts::receive(Port& port) {
  const int count = port.receive(batch_);
  if (count <= 0) return false;
  if (batch_.full()) port.collect_drops();  // drops need a backlog
  const std::lock_guard guard(engine_mutex_);
  const auto lock = engine_ != nullptr ? engine_->traffic() : engine::Engine::Traffic();
  std::uint64_t now = now_us();
  const bool each = engine_ != nullptr && engine_->uses_clock();  // otherwise one time suffices
  PortCounters& counters = port.counters;
  for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
    counters.rx_frames.add(1);
    const MutableBytes frame = batch_.frame(i);
    if (frame.empty()) {
      counters.rx_refused.add(1);
      continue;
    }
    Segments segments(frame, batch_.offload(i));
    if (segments.refused()) counters.rx_refused.add(1);
    while (const auto packet = segments.next()) {
      counters.rx_packets.add(1);
      counters.rx_bytes.add(packet->size());
      if (each) now = now_us();
      if (port.in.link) [[unlikely]] {
        port.in.link->push(*packet, static_cast<Time>(now) * kMicrosecond);
      } else {
        process(port, *packet, now);
      }
    }
  }
  return batch_.cut();
}

void SwitchPorts::emit(std::uint16_t number, const engine::Pieces& packet) {
  Port* port = find(number);
  if (port == nullptr) return no_such_port_.add(1);
  if (!port->out.link) return port->emit(packet);
  port->out.link->push(packet.whole(whole_), now<std::chrono::steady_clock>(), packet.priority);
}

/// Forwards due packets of impaired links, and sets the timer for the others.
void SwitchPorts::release_due() {
  if (!impaired_) return;
  const std::lock_guard guard(engine_mutex_);
  const auto lock = engine_ != nullptr ? engine_->traffic() : engine::Engine::Traffic();
  const Time at = now<std::chrono::steady_clock>();
  Time next = kNever;
  for (const auto& port : ports_) {
    if (!port->in.link) continue;
    while (const auto packet = port->in.link->pop(at)) {
      process(*port, *packet, static_cast<std::uint64_t>(at / kMicrosecond));
    }
    next = std::min(next, port->in.link->deadline());
  }
  for (const auto& port : ports_) {
    if (!port->out.link) continue;
    while (const auto packet = port->out.link->pop(at)) port->emit(engine::Pieces(*packet));
    next = std::min(next, port->out.link->deadline());
  }
  itimerspec when{};  // all zeros: no timer
  if (next != kNever) when.it_value = {next / kSecond, next % kSecond};
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void SwitchPorts::flush_all() {
  bool due = retry_at_us_ != 0 && now_us() >= retry_at_us_;
  if (due) retry_at_us_ = 0;
  bool released;
  do {
    released = false;
    for (const auto& port : ports_) {
      if (port->retry ? due : port->dirty && !port->waiting) released |= flush(*port);
    }
    due = false;
  } while (released);  // copies of released packets may go to ports already flushed
}

/// Returns whether packets that waited in the engine have run.
bool SwitchPorts::flush(Port& port) {
  const std::lock_guard guard(engine_mutex_);  // a capture may end meanwhile
  Port::Flush result = port.flush();
  const bool releases = port.holds && result == Port::Flush::kDone;
  if (releases) result = release(port);
  port.retry = result == Port::Flush::kLater;
  if (port.retry && retry_at_us_ == 0) retry_at_us_ = now_us() + kRetryMs * 1000;
  const bool blocked = result == Port::Flush::kBlocked;
  if (blocked == port.waiting || port.fd() < 0) return releases;
  port.waiting = blocked;
  const auto key = static_cast<std::uint64_t>(
      std::find_if(ports_.begin(), ports_.end(), [&](const auto& p) { return p.get() == &port; }) -
      ports_.begin());
  watch(port.fd(), blocked ? EPOLLIN | EPOLLOUT : EPOLLIN, key, EPOLL_CTL_MOD);
  return releases;
}

/// Sends packets that wait in the engine, one at a time, until the socket accepts no more.
Port::Flush SwitchPorts::release(Port& port) {
  const auto lock = engine_->traffic();
  while (engine_->release(port.number(), now_us(), *this)) {
    if (const Port::Flush result = port.flush(); result != Port::Flush::kDone) return result;
  }
  port.holds = false;
  return Port::Flush::kDone;
}

void SwitchPorts::handle_links() {
  links_.drain();
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    {
      const std::lock_guard guard(engine_mutex_);  // `set_engine` uses the socket too
      if (ports_[i]->refresh() != Port::Change::kReopened) continue;
    }
    ports_[i]->waiting = false;
    watch(ports_[i]->fd(), EPOLLIN, i, EPOLL_CTL_ADD);  // closing the old socket removed it from epoll
    flush(*ports_[i]);
  }
}

}  // namespace railweave::ports
