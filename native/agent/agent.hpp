// SPDX-License-Identifier: Apache-2.0
// The agent of one communicator. It owns the event loop and the rails, cuts calls into slices and completes
// calls.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/calls.hpp"
#include "agent/channel_listener.hpp"
#include "agent/records.hpp"
#include "agent/recovery_driver.hpp"
#include "core/collective.hpp"
#include "core/secret.hpp"
#include "loop/event_loop.hpp"
#include "loop/shared_loop.hpp"
#include "rails/rail.hpp"
#include "rails/socket.hpp"

namespace railweave {

/// State from which the planner plans one call. All ranks share the sequence of calls and changes.
struct PlanPoint {
  std::uint32_t op_index;
  std::size_t changes;  // number of known changes; those with from_op <= op_index apply

  bool operator==(const PlanPoint&) const = default;
};

/// The rails that carry calls from `from_op` on.
struct Change {
  std::uint32_t from_op;
  std::vector<bool> alive;           // by rail
  std::vector<std::string> reasons;  // why a rail carries no calls; by rail
};

struct RailState {
  recovery::State state = recovery::State::kUp;
  std::string reason{};  // last reason why it was not up; if it is up: its present problem
  Time since = 0;
  std::uint32_t epoch = 0;        // of the last decision
  std::uint32_t incarnation = 0;  // restarts of the main channel, failed trials included
  std::uint64_t failures = 0;     // number of agreed exclusions
  std::string last_failure{};     // reason of the last exclusion
  Duration down = 0;              // total time not up
};

/// All methods are thread-safe. Waiting threads share the work of the loop.
///
/// Without recovery the first failure ends the communicator: rails drop all buffers, peers are notified, and
/// every pending call fails. With recovery only the loss of a rank ends it. Rails may fail and come back.
class Agent final : private SharedLoop::Client, private Timed {
 public:
  Agent(int rank, int world_size);
  ~Agent() override;
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  /// Sets the job's secret. Call it once, before rails are connected.
  void set_secret(const Secret& secret);
  /// Throws std::logic_error before `set_secret`.
  const Secret& secret() const;

  /// Makes a rail that reports to the listener.
  using RailFactory = std::function<std::unique_ptr<Rail>(EventLoop&, RailListener&)>;
  std::size_t add_rail(std::string name, LocalInterface at, std::uint64_t rate_bps, const RailFactory& make);
  /// Runs `task` on the loop's thread and rethrows its exception. Must not be called inside the loop.
  void on_loop(const std::function<void()>& task);
  /// Like `on_loop`, for a task that uses a rail: the rail owns the handlers that the task registers.
  void on_rail(std::size_t rail, const std::function<void()>& task);
  /// Waits until `reached` is true or a failure comes; both give kDone. The loop's thread calls `reached`.
  Outcome wait_until(const std::function<bool()>& reached, Time latest);

  // ---- recovery, see docs/design/recovery.md

  /// Opens a rail's control sockets. Returns their port, the same for UDP and TCP. Throws std::system_error.
  std::uint16_t open_control(std::size_t rail);
  /// Call it once, when all rails are connected and before the first call. Rails may then fail and come back.
  /// `members`: by rail and rank. `rates`: see `Calls::keep`. A call waits while earlier calls keep
  /// `most_kept` bytes for other ranks; the largest of these calls does not count. Throws std::logic_error if
  /// recovery cannot be enabled.
  void enable_recovery(const std::vector<std::vector<SocketAddress>>& members,
                       std::vector<std::uint64_t> rates, Duration peer_timeout, std::size_t most_kept);
  /// Tells the agent that recovery stays off although its ports are open. Any failure of a rail, also an
  /// earlier one, then ends the communicator.
  void forgo_recovery();
  /// Gives the state from which to plan the next call. Waits while the ranks agree on the alive rails, and
  /// while earlier calls keep too much memory. Ranks do not wait for the plan: a later change makes the point
  /// stale. Returns at once after a failure.
  Outcome plan_point(PlanPoint& point, Time latest);
  /// Returns the next call's index.
  std::uint32_t next_op() const;
  /// Returns the changes after the first `since`, in order, and forgets the first `since`.
  std::vector<Change> changes(std::size_t since);
  /// Waits until more than `since` changes are known, or for the first failure.
  Outcome wait_change(std::size_t since, Time latest);
  /// Says why this rank cannot use a rail; "" clears the reason. Has no effect without recovery.
  void set_obstacle(std::size_t rail, const std::string& reason);
  /// Excludes a rail that cannot go on until it has been restarted. Works only with recovery.
  void suspect(std::size_t rail, const std::string& reason);
  std::vector<RailState> rail_states();

  // ---- calls

  /// Submits the next call, planned from `planned_from`. Its arrays must stay valid until it has completed or
  /// failed. Without `start_now` it starts when a thread waits, which saves that thread a hand-over. Returns
  /// false and submits nothing if the point is stale or `plan_point` would wait. Throws std::logic_error if
  /// the call is not the next one or a part is outside the call.
  bool submit(const Submission& submission, const PlanPoint& planned_from, bool start_now);
  /// Sets how long a thread that waits for a small call polls before it sleeps. Before the first call only.
  void set_spin(Duration spin) { spin_ = spin; }
  /// Moves all work of calls to a thread of the agent on these CPUs. This thread spins for calls of any size,
  /// and waiting threads sleep. Throws std::invalid_argument for CPUs that this process may not use.
  void progress_on(const std::vector<int>& cpus) { shared_loop_.lead_on(cpus, spin_); }
  /// kInterrupted: a signal may have come; check signals and wait again. kDone: read `failure_of`.
  Outcome wait(std::uint32_t op_index, Time latest);
  bool done(std::uint32_t op_index) const;
  /// The rails with incomplete parts of a pending call; empty once the call is done.
  std::vector<std::size_t> lagging(std::uint32_t op_index) const;
  /// Why this call failed; nothing if it did not fail.
  std::optional<Failure> failure_of(std::uint32_t op_index) const;
  std::optional<Failure> failure() const;

  /// Ends the communicator, as after a rail's report of this failure.
  void fail(const Failure& failure);
  /// Says goodbye on all rails and waits up to `linger` until no peer needs this rank. Each time that this
  /// rank sends data again, the wait is extended by up to `linger`. Then stops.
  void close(Duration linger);

  /// Returns the rails' next stall, in order. Returns nothing if none comes until `latest` or the agent is
  /// closed.
  std::optional<std::pair<std::size_t, Stall>> next_stall(Time latest);

  std::vector<RailStats> stats();
  /// By rail.
  std::vector<std::vector<GroupStats>> groups();
  std::vector<SliceRecord> drain_records(Records::Reader reader);

 private:
  struct Place {
    std::string name;
    LocalInterface at;
    std::uint64_t rate_bps;
  };
  // Reports of rails.
  friend ChannelListener;
  void slice_done(ChannelId channel, std::uint64_t id, Time now);
  void rail_failed(ChannelId channel, const Failure& failure, Time now);
  void stalled(std::size_t rail, const Stall& stall, Time now);
  std::optional<MessageLabel> own_label(ChannelId channel, const SliceKey& key) const;

  // Decisions and questions of recovery. All run on the loop's thread.
  friend RecoveryDriver;
  recovery::Position prepare(recovery::RailSet alive);  // the agent submits nothing until `commit`
  void commit(const recovery::Commit& commit);
  void go_on();  // after `commit`, when the repair channels are open
  void all_completed(std::uint32_t op_index);
  void rail_changed(const recovery::RailChanged& change, std::uint32_t epoch, Time now);
  void restarting(const recovery::Restart& restart);
  std::uint32_t submitted() const;  // this rank has submitted the calls before this one
  std::optional<Calls::Laggard> laggard(std::size_t rail) const;
  std::optional<Calls::Front> front(ChannelId channel) const;
  void peer_lost(int rank, const std::string& reason);

  // Timed: due while results are being copied to callers.
  Time deadline() const override;
  void expire(Time now) override;

  // SharedLoop::Client
  void before_turn() override { start_submitted(); }
  void after_turn() override;
  void turn_failed(const std::exception& error) override;
  bool busy() const override { return calls_.pending_calls() > 0; }

  void check(const Submission& submission, std::uint32_t op_index) const;
  bool has_room() const;
  bool current(const PlanPoint& point) const { return !calls_.preparing() && point == next_point(); }
  std::size_t known_changes() const { return forgotten_changes_ + changes_.size(); }
  PlanPoint next_point() const { return {.op_index = calls_.next(), .changes = known_changes()}; }
  void start_submitted();
  void start_slices(std::unique_lock<std::mutex>& lock, ChannelId channel);
  void skip_call(std::unique_lock<std::mutex>& lock, std::uint32_t op_index);
  void deliver(std::unique_lock<std::mutex>& lock);
  void report_early_failures(Time now);
  void explain_silence(std::size_t rail, Failure& silence, Time now) const;
  void abort(const Failure& failure, Time now) noexcept;
  void say_goodbye(Duration linger);
  std::uint64_t resends() const;
  bool in_use(std::size_t rail) const { return !recovery_ || recovery_->in_use(rail); }

  const int rank_;
  const int world_size_;
  std::optional<Secret> secret_;
  EventLoop loop_;
  // These members change on the loop's thread only.
  std::deque<ChannelListener> listeners_;  // by rail; a listener's address must not change
  std::vector<std::unique_ptr<Rail>> rails_;
  std::vector<Place> places_;
  bool undecided_ = false;                           // whether rails may be excluded
  std::map<std::size_t, Failure> early_failures_{};  // of rails, while undecided
  std::unique_ptr<RecoveryDriver> recovery_;         // made by the first `open_control`

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable stall_reported_;
  bool closing_ = false;
  Calls calls_;
  std::uint32_t started_ops_ = 0;  // channels may take slices of calls before this one
  std::size_t most_kept_ = 0;
  std::deque<Change> changes_;
  std::size_t forgotten_changes_ = 0;  // number of changes forgotten
  std::uint32_t released_ = 0;         // calls before this one are complete on all ranks
  std::vector<RailState> states_;
  std::deque<std::pair<std::size_t, Stall>> stalls_;
  std::set<std::uint32_t> failed_ops_;
  std::optional<Failure> failure_;
  Duration spin_ = 0;  // set before the first call
  Records records_;

  SharedLoop shared_loop_;  // last: its thread uses all of the above
};

}  // namespace railweave
