// SPDX-License-Identifier: Apache-2.0
// The agent of one communicator: it owns the event loop and the rails, cuts calls into slices and completes
// them.
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

/// What a call is planned from: where it stands in the sequence that all ranks share, and what is known.
struct PlanPoint {
  std::uint32_t op_index;
  std::size_t changes;  // so many are known; those from calls up to this one on are in force

  bool operator==(const PlanPoint&) const = default;
};

/// From this call on, these rails carry calls.
struct Change {
  std::uint32_t from_op;
  std::vector<bool> alive;           // by rail
  std::vector<std::string> reasons;  // of those that do not; by rail
};

struct RailState {
  recovery::State state = recovery::State::kUp;
  std::string reason{};  // the last one why it was not up, or what is wrong with it although it is
  Time since = 0;
  std::uint32_t epoch = 0;        // of the last decision
  std::uint32_t incarnation = 0;  // restarts of the main channel, failed trials included
  std::uint64_t failures = 0;     // how often the ranks have agreed to exclude it
  std::string last_failure{};     // why they did so the last time
  Duration down = 0;              // for how long in total
};

/// Any thread may call anything; the loop is shared among those that wait.
///
/// Without recovery the first failure ends the communicator: rails drop all buffers, peers are notified,
/// every pending call fails with it. With recovery only the loss of a rank does; rails may fail and come
/// back.
class Agent final : private SharedLoop::Client, private Timed {
 public:
  Agent(int rank, int world_size);
  ~Agent() override;
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  /// The job's. Once, before rails are connected.
  void set_secret(const Secret& secret);
  /// std::logic_error before it is set.
  const Secret& secret() const;

  /// Makes a rail that reports to the listener.
  using RailFactory = std::function<std::unique_ptr<Rail>(EventLoop&, RailListener&)>;
  std::size_t add_rail(std::string name, LocalInterface at, std::uint64_t rate_bps, const RailFactory& make);
  /// Runs `task` on the loop's thread and rethrows what it throws. Not from inside the loop.
  void on_loop(const std::function<void()>& task);
  /// The same for a task that calls what is behind a rail: handlers that it registers are the rail's.
  void on_rail(std::size_t rail, const std::function<void()>& task);
  /// Waits until `reached`, which is asked on the loop's thread, or the first failure (kDone as well).
  Outcome wait_until(const std::function<bool()>& reached, Time latest);

  // ---- recovery, see docs/design/recovery.md

  /// Opens what the rail needs for it; the port, of UDP and TCP. std::system_error.
  std::uint16_t open_control(std::size_t rail);
  /// Once, when all rails are connected and before the first call: from now on rails may fail and come back.
  /// `members`: by rail and rank. `rates`: of the rails, as `Calls::keep` wants them. A call waits while
  /// earlier calls keep `most_kept` bytes for other ranks, without the largest of these calls. Throws
  /// std::logic_error if recovery cannot be enabled.
  void enable_recovery(const std::vector<std::vector<SocketAddress>>& members,
                       std::vector<std::uint64_t> rates, Duration peer_timeout, std::size_t most_kept);
  /// Recovery will not be enabled although its ports are open: a rail that fails, or has failed, ends the
  /// communicator.
  void forgo_recovery();
  /// What the next call is to be planned from: waits while the ranks agree on which rails live, and while
  /// earlier calls keep too much memory. The ranks do not wait for the plan: a change makes a point stale. At
  /// once after a failure.
  Outcome plan_point(PlanPoint& point, Time latest);
  /// The next call's index.
  std::uint32_t next_op() const;
  /// The changes after the first `since`, in order. Forgets the first `since`.
  std::vector<Change> changes(std::size_t since);
  /// Waits until there are more than so many changes, or the first failure.
  Outcome wait_change(std::size_t since, Time latest);
  /// Why this rank cannot use a rail, until it is cleared by "". Without recovery it has no effect.
  void set_obstacle(std::size_t rail, const std::string& reason);
  /// A rail cannot go on by itself: it is excluded until it has been restarted. Only with recovery.
  void suspect(std::size_t rail, const std::string& reason);
  std::vector<RailState> rail_states();

  // ---- calls

  /// The next call, planned from this point. Its arrays stay valid until it has completed or failed. Without
  /// `start_now` it starts when somebody waits, which saves the waiter a hand-over. False if the point is
  /// stale, or one would have to be waited for now: nothing has been submitted. std::logic_error for
  /// another call than the next one, or parts outside it.
  bool submit(const Submission& submission, const PlanPoint& planned_from, bool start_now);
  /// How long whoever waits for a small call looks for its end before it sleeps. Before the first call.
  void set_spin(Duration spin) { spin_ = spin; }
  /// From now on a thread of the agent's own does all the work of calls, on these CPUs alone, and spins as
  /// set, whatever the call; whoever waits sleeps. std::invalid_argument for CPUs that this process may not
  /// use.
  void progress_on(const std::vector<int>& cpus) { shared_loop_.lead_on(cpus, spin_); }
  /// kInterrupted: a signal has come, or it is time to look for one; wait again. Read `failure_of` after
  /// kDone.
  Outcome wait(std::uint32_t op_index, Time latest);
  bool done(std::uint32_t op_index) const;
  /// The rails whose parts of a pending call are not complete; empty once it is done.
  std::vector<std::size_t> lagging(std::uint32_t op_index) const;
  /// Why this call did not complete; nothing if it did.
  std::optional<Failure> failure_of(std::uint32_t op_index) const;
  std::optional<Failure> failure() const;

  /// Ends the communicator, as if a rail had reported this.
  void fail(const Failure& failure);
  /// Says goodbye on all rails and gives the peers up to `linger`, and for each time that it sends something
  /// again up to `linger` more, to need nothing more of this rank; then
  /// stops.
  void close(Duration linger);

  /// The next stall that a rail reports, in order; nothing if none comes until `latest` or the agent is
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

  // Decisions and questions of recovery. All on the loop's thread.
  friend RecoveryDriver;
  recovery::Position prepare(recovery::RailSet alive);  // the agent submits nothing until `commit`
  void commit(const recovery::Commit& commit);
  void go_on();  // after `commit`, when its channels are open
  void all_completed(std::uint32_t op_index);
  void rail_changed(const recovery::RailChanged& change, std::uint32_t epoch, Time now);
  void restarting(const recovery::Restart& restart);
  std::uint32_t submitted() const;  // this rank has submitted the calls before this one
  std::optional<Calls::Laggard> laggard(std::size_t rail) const;
  std::optional<Calls::Front> front(ChannelId channel) const;
  void peer_lost(int rank, const std::string& reason);

  // Timed: due as long as a result is on its way to its caller.
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
  // What follows changes on the loop's thread only.
  std::deque<ChannelListener> listeners_;  // by rail; their addresses stay
  std::vector<std::unique_ptr<Rail>> rails_;
  std::vector<Place> places_;
  bool undecided_ = false;                           // whether rails may be excluded
  std::map<std::size_t, Failure> early_failures_{};  // of rails, until that is known
  std::unique_ptr<RecoveryDriver> recovery_;         // made by the first `open_control`

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable stall_reported_;
  bool closing_ = false;
  Calls calls_;
  std::uint32_t started_ops_ = 0;  // channels may take slices of calls before this one
  std::size_t most_kept_ = 0;
  std::deque<Change> changes_;
  std::size_t forgotten_changes_ = 0;  // older ones
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
