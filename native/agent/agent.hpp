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
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/collective.hpp"
#include "loop/event_loop.hpp"
#include "rails/rail.hpp"

namespace railweave {

/// One rail's part of a tensor, in elements. The parts of a call do not overlap and cover it.
struct Part {
  std::size_t rail;
  std::size_t offset;
  std::size_t count;
};

/// One slice as it went, for progress and timelines. Times are CLOCK_MONOTONIC's.
struct SliceRecord {
  std::uint32_t op_index;
  std::size_t rail;
  Time start;  // when the rail was free for it
  Time end;
  std::uint64_t bytes;
};

enum class Outcome { kDone, kTimeout, kInterrupted };

/// Any thread may call anything. One thread at a time drives the loop: a thread that waits drives it itself,
/// so that a result needs no hand-over between threads; while nobody waits, a thread of the agent's own does.
///
/// The first failure ends everything: rails let go of all buffers, peers are told, every pending call fails
/// with it.
class Agent final : private RailListener {
 public:
  Agent(int rank, int world_size);
  ~Agent() override;
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  /// What a rail needs to be made: its index, and where to report.
  using RailFactory = std::function<std::unique_ptr<Rail>(std::size_t index, EventLoop&, RailListener&)>;
  std::size_t add_rail(std::string name, const RailFactory& make);
  /// Runs `task` on the loop's thread, and hands on what it throws. Not from inside the loop.
  void on_loop(const std::function<void()>& task);
  /// Drives the loop until `reached`, which is asked on the loop's thread, or the first failure (kDone as
  /// well).
  Outcome wait_until(const std::function<bool()>& reached, Time latest);

  /// A collective of `count` elements at `input`, which may be `output`. Both stay valid until the call has
  /// completed or failed. Without `start_now` it starts when somebody waits, which saves the waiter a
  /// hand-over.
  std::uint32_t submit(const CallDescription& call, const std::byte* input, std::byte* output,
                       std::span<const Part> parts, bool start_now);
  /// kInterrupted: a signal has come, or it is time to look for one; wait again. Read `failure_of` after
  /// kDone.
  Outcome wait(std::uint32_t op_index, Time latest);
  bool done(std::uint32_t op_index) const;
  /// The rails whose parts of a pending call are not complete; empty once it is done.
  std::vector<std::size_t> lagging(std::uint32_t op_index) const;
  /// Why this call did not complete; nothing if it did.
  std::optional<Failure> failure_of(std::uint32_t op_index) const;
  std::optional<Failure> failure() const;

  /// Ends everything, as if a rail had reported it.
  void fail(const Failure& failure);
  /// Says goodbye on all rails and gives the peers up to `linger` to be done with this rank; then nothing
  /// runs any more.
  void close(Duration linger);

  /// The next stall that a rail tells of, in order; nothing if none comes until `latest` or the agent is
  /// closed.
  std::optional<std::pair<std::size_t, Stall>> next_stall(Time latest);

  std::vector<RailStats> stats();
  /// By rail.
  std::vector<std::vector<GroupStats>> groups();
  std::vector<SliceRecord> drain_records();

 private:
  struct Pending {
    CallDescription call;
    Time submitted;
    std::vector<Part> parts;  // those that are not complete
  };
  struct Submission {
    Slice slice;
    std::size_t rail;
  };
  // Who drives the loop. A thread that wants the seat wakes the one that holds it, which makes room after its
  // turn.
  enum class Seat { kFree, kBackground, kForeground };

  void slice_done(std::size_t rail, std::uint64_t id, Time now) override;
  void rail_failed(std::size_t rail, const Failure& failure, Time now) override;
  void stalled(std::size_t rail, const Stall& stall, Time now) override;
  std::optional<CallDescription> pending_call(std::uint32_t op_index) const override;

  void work_in_background();
  void take_seat(std::unique_lock<std::mutex>& lock);
  void leave_seat();
  template <typename Reached>
  Outcome drive(std::unique_lock<std::mutex>& lock, const Reached& reached, Time latest);
  bool turn(std::unique_lock<std::mutex>& lock, Time latest);
  void start_submitted(std::unique_lock<std::mutex>& lock);
  void pass_over(std::unique_lock<std::mutex>& lock, std::uint32_t op_index);
  void judge(std::size_t rail, Failure& silence, Time now) const;
  void end_all(const Failure& failure, Time now);

  const int rank_;
  const int world_size_;
  EventLoop loop_;
  std::vector<std::unique_ptr<Rail>> rails_;  // grows on the loop's thread
  std::vector<std::string> names_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::condition_variable background_wanted_;
  std::condition_variable stall_told_;  // apart: `changed_` wakes its waiters with every call
  Seat seat_ = Seat::kFree;
  int seat_wanted_ = 0;       // threads that wait for the seat
  Time last_foreground_ = 0;  // when one left it
  bool stopping_ = false;
  std::uint32_t next_op_ = 0;
  std::map<std::uint32_t, Pending> pending_;
  std::deque<Submission> submitted_;
  std::uint32_t started_ops_ = 0;  // calls before this one are known to all their rails
  std::deque<std::pair<std::size_t, Stall>> stalls_;
  std::set<std::uint32_t> failed_ops_;
  std::optional<Failure> failure_;
  std::deque<SliceRecord> records_;
  std::vector<Time> rail_free_;  // end of the rail's last slice

  std::thread background_;
};

}  // namespace railweave
