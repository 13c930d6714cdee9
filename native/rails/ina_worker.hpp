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

/// The rail's thread asks, with `later` and `run`, in this order also across the two; the worker reports. All
/// of it but `progress` is for the rail's thread.
class InaWorker final : private ReadyHandler, private SharedLoop::Client, private HandlerOwner {
 public:
  using Task = std::function<void(InaTrees&, Time now)>;

  /// `reported` is posted to the rail's loop, for its owner, when there is something to `poll`. Throws as
  /// InaTrees and SharedLoop::lead_on.
  InaWorker(int cpu, Duration spin, DatagramSocket& socket, const InaTreesOptions& options,
            const std::vector<InaGroup>& groups, const std::vector<SocketAddress>& members,
            EventLoop& rail_loop, std::function<void()> reported);

  /// The worker does it, soon.
  void later(Task task);
  /// Between two turns of the worker, here and now; what it throws comes out.
  void run(const Task& task);
  std::optional<InaTrees::Event> poll();
  /// Nothing is reported any more that has happened until now.
  void forget();
  /// Goes on after a failure of its own.
  void resume();
  /// The same, and ends the thread; what is asked for then is done here.
  void stop();
  /// As of the last turn.
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
  std::deque<InaTrees::Event> events_;  // guarded by it
  SharedLoop shared_loop_;              // last: its thread uses all of the above
};

}  // namespace railweave
