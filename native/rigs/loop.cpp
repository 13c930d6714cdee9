// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.loop: a shared loop without an agent above it, for tests.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/values.hpp"
#include "loop/shared_loop.hpp"
#include "rigs/rig.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

using Task = std::function<void()>;
using Release = nb::call_guard<nb::gil_scoped_release>;

// Threads wait until a counter reaches a number.
class Counter final : private SharedLoop::Client {
 public:
  explicit Counter(Task on_failure) : on_failure_(std::move(on_failure)), shared_(loop_, mutex_, *this) {
    shared_.run([this] { loop_.add_timed(alarm_); });
  }

  void run(const Task& task) {
    shared_.run([&] { with_gil(task); });
  }
  Outcome wait(int until, double timeout_s) {
    std::unique_lock lock(mutex_);
    return shared_.wait(lock, [&] { return value_ >= until; }, after(timeout_s));
  }
  Outcome wait_leading(int until, double timeout_s) {
    std::unique_lock lock(mutex_);
    return shared_.wait_leading(lock, [&] { return value_ >= until; }, after(timeout_s));
  }
  void lead_on(const std::vector<int>& cpus) { shared_.lead_on(cpus, 0); }
  void prompt() {
    std::unique_lock lock(mutex_);
    shared_.prompt(lock);
  }
  void close(const Task& task) {
    shared_.close([&] { with_gil(task); });
  }
  void turn_until(int until, double timeout_s) {
    shared_.turn_until([&] { return value_ >= until; }, after(timeout_s));
  }

  void set(int value) {
    const std::lock_guard lock(mutex_);
    value_ = value;
    shared_.notify();
    loop_.wake();
  }
  void set_next(int value) {
    const std::lock_guard lock(mutex_);
    next_ = value;
  }
  void fail_next(std::string what) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(what);
  }
  void watch_broken(int fd) {
    shared_.run([&] { loop_.watch(fd, EPOLLIN, broken_); });
  }
  void set_alarm(double after_s, Task task) {
    shared_.run([&] {
      alarm_.task = std::move(task);
      alarm_.at = after(after_s);
    });
  }
  void add_broken_timer() {
    shared_.run([&] { loop_.add_timed(broken_); });
  }
  std::uint64_t turns() {
    const std::lock_guard lock(mutex_);
    return turns_;
  }
  std::vector<std::string> failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }

 private:
  // Its cause stays, so the loop would call it in every turn.
  struct Broken final : ReadyHandler, Timed {
    void on_ready(std::uint32_t, Time) override { throw std::runtime_error("a handler has thrown"); }
    Time deadline() const override { return 0; }
    void expire(Time) override { throw std::runtime_error("a timer has thrown"); }
  };

  struct Alarm final : Timed {
    Time at = kNever;
    Task task;

    Time deadline() const override { return at; }
    void expire(Time) override {
      at = kNever;
      with_gil(task);
    }
  };

  static void with_gil(const Task& task) {
    const nb::gil_scoped_acquire acquire;
    task();
  }
  static Time after(double seconds) { return EventLoop::now() + nanoseconds(seconds); }

  void before_turn() override {
    const std::lock_guard lock(mutex_);
    ++turns_;
    if (next_ > value_) {
      value_ = next_;
      shared_.notify();
    }
    if (!failure_.empty()) throw std::runtime_error(std::exchange(failure_, {}));
  }
  void after_turn() override {}
  void turn_failed(const std::exception& error) override {
    std::unique_lock lock(mutex_);
    failures_.emplace_back(error.what());
    lock.unlock();
    with_gil(on_failure_);
  }
  bool busy() const override { return false; }

  const Task on_failure_;
  Broken broken_;
  Alarm alarm_;
  EventLoop loop_;
  std::mutex mutex_;
  int value_ = 0, next_ = 0;
  std::uint64_t turns_ = 0;
  std::string failure_;
  std::vector<std::string> failures_;
  SharedLoop shared_;
};

}  // namespace

void bind_loop(nb::module_& m) {
  nb::module_ sub = rig_submodule(m, "loop", "The event loop that threads share, for tests");
  RAILWEAVE_ENUM(sub, Outcome, kDone, kTimeout, kInterrupted);
  nb::class_<Counter>(sub, "Counter", "A number that threads wait for on a shared loop")
      .def(nb::init<Task>(), "on_failure"_a, "`on_failure` is called when a turn has thrown")
      .def("run", &Counter::run, "task"_a, Release(), "Run on the loop")
      .def("wait", &Counter::wait, "until"_a, "timeout_s"_a, Release())
      .def("wait_leading", &Counter::wait_leading, "until"_a, "timeout_s"_a, Release())
      .def("lead_on", &Counter::lead_on, "cpus"_a, Release(), "ValueError for CPUs that there are not")
      .def("prompt", &Counter::prompt, Release())
      .def("close", &Counter::close, "task"_a, Release(), "Run on the loop, at last")
      .def("turn_until", &Counter::turn_until, "until"_a, "timeout_s"_a, Release(), "From inside of a task")
      .def("set", &Counter::set, "value"_a, Release())
      .def("set_next", &Counter::set_next, "value"_a, Release(), "Set by what comes before the next turn")
      .def("fail_next", &Counter::fail_next, "what"_a, Release(), "Let what comes before the next turn throw")
      .def("watch_broken", &Counter::watch_broken, "fd"_a, Release(), "Let its handler throw")
      .def("set_alarm", &Counter::set_alarm, "after_s"_a, "task"_a, Release(),
           "Run on the loop then, not before")
      .def("add_broken_timer", &Counter::add_broken_timer, Release(), "One that is due at once and throws")
      .def("turns", &Counter::turns, Release(), "How many have begun")
      .def("failures", &Counter::failures, Release(), "What turns have thrown");
}

}  // namespace railweave
