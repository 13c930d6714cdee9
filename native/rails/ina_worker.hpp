// SPDX-License-Identifier: Apache-2.0
// A thread that serves trees of an in-network rail, on one CPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "loop/event_loop.hpp"
#include "loop/shared_loop.hpp"
#include "rails/ina_trees.hpp"

namespace railweave {

/// The rail's thread gives tasks with `later` and `run`, which are carried out in the order of these calls.
/// Only the rail's thread may call these functions, except `progress`.
class InaWorker final : private ReadyHandler, private SharedLoop::Client, private HandlerOwner {
 public:
  using Task = std::function<void(InaTrees&, Time now)>;

  /// `reported` is posted to the rail's loop, for its owner, when there is something to `poll`. Throws as
  /// InaTrees and SharedLoop::lead_on.
  InaWorker(int cpu, Duration spin, DatagramSocket& socket, const InaTreesOptions& options,
            const std::vector<InaGroup>& groups, const std::vector<SocketAddress>& members,
            EventLoop& rail_loop, std::function<void()> reported);

  /// Queues a task for the worker.
  void later(Task task);
  /// Runs a task in the calling thread, between two turns of the worker. Passes on the task's exceptions.
  void run(const Task& task);
  std::optional<InaTrees::Event> poll();
  /// Discards all events until now.
  void forget();
  /// Continues after a failure of the worker.
  void resume();
  /// Discards all events and ends the thread. Then tasks of `later` wait for the next `run`.
  void stop();
  /// Progress as of the last turn.
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  void on_ready(std::uint32_t events, Time now) override { trees_.on_ready(events, now); }
  void before_turn() override {}
  void after_turn() override;
  void turn_failed(const std::exception& error) override;
  void handler_failed(const std::exception& error, Time) override { turn_failed(error); }
  bool busy() const override { return true; }

  EventLoop& rail_loop_;
  HandlerOwner* const rail_owner_;
  const std::function<void()> reported_;
  EventLoop loop_;
  InaTrees trees_;
  std::atomic<std::uint64_t> progress_{0};
  std::mutex mutex_;
  std::deque<InaTrees::Event> events_;  // guarded by `mutex_`
  SharedLoop shared_loop_;              // last: its thread uses all of the above
};

}  // namespace railweave
