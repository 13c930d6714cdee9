// SPDX-License-Identifier: Apache-2.0
// A rail as the agent sees it: slices go in, completions come out, all on the loop's thread. A rail's
// exceptions stay inside the rail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/label.hpp"
#include "core/collective.hpp"
#include "core/failure.hpp"
#include "core/rail_stats.hpp"
#include "core/slice.hpp"
#include "core/time.hpp"
#include "ina/endpoint.hpp"
#include "loop/event_loop.hpp"

namespace railweave {

/// Counts and state of one aggregation tree, since the rail formed it and over all moves of the tree. `stale`
/// and `duplicates` include multicast packets.
struct GroupStats : ina::EndpointStats {
  std::uint16_t group = 0;            // the tree's current number in the switches; changes when it moves
  std::uint32_t slots = 0;            // greatest number of chunks in flight
  std::uint32_t in_flight = 0;        // chunks in flight now
  std::uint32_t window = 0;           // current limit of chunks in flight
  Duration rtt = 0;                   // smoothed
  std::uint64_t mismatches = 0;       // results whose contributions do not belong together
  std::uint64_t refused_packets = 0;  // malformed, or not for this child; includes multicast packets
  // Multicast slices. Their chunks are no contributions.
  std::uint64_t multicasts = 0;
  std::uint64_t multicast_bytes = 0;  // of tensors, sent once to all ranks
  std::uint64_t fetched_bytes = 0;    // received after a peer had to send them again
  std::uint64_t answered_bytes = 0;   // sent again to peers
};

/// A tree has returned no results for a while.
struct Stall {
  std::uint16_t group;
  bool first_switch_ok;  // the first switch answers probes
  bool root_ok;          // probes come back from the root
  bool spoilt;           // the switch has a sum that does not match the ranks' seals
};

/// Receives the reports of one rail, on the loop's thread.
class RailListener {
 public:
  virtual ~RailListener() = default;
  /// Always in the order in which the rail's slices were started.
  virtual void slice_done(std::uint64_t id, Time now) = 0;
  virtual void rail_failed(const Failure& failure, Time now) = 0;
  /// The rail waits for a tree and keeps trying. Each silence is reported once.
  virtual void stalled(const Stall&, Time) {}
  /// See TransportListener::own_label.
  virtual std::optional<MessageLabel> own_label(const SliceKey&) const { return std::nullopt; }
};

/// One rail of one rank. Its state:
///
///     state        entered by                                         slices start   left by
///     running      construction, `restart`                            yes            all below
///     halted       `halt`, or an exception of the rail's code         no             `restart`, `abort`
///     halt failed  the same, and `do_halt` has thrown as well         no             all others
///     aborted      `abort`                                            no             `halt`, `restart`
///
/// The rail owns its handlers and timers. An exception of the rail's code is reported as kRailDown. Then the
/// loop calls no code of the rail until the owner halts it. Only `restart` and `groups` throw; their callers
/// handle the exceptions. The protected functions are the rail's code.
class Rail : public Timed, public HandlerOwner {
 public:
  /// The ranks agree on these values before a halted rail is used again.
  struct Restart {
    std::uint32_t incarnation;         // of the connections; greater than all before
    std::vector<std::uint64_t> bases;  // each the greatest of all ranks' `next_chunks`
  };

  /// `loop` runs the rail's handlers. It is null in a simulation, which calls the handlers itself.
  Rail(EventLoop* loop, RailListener& listener) : listener_(listener), loop_(loop) {}
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;

  virtual std::string_view kind() const = 0;
  /// Whether the rail can start one more slice now. A rail holds only slices that it works on.
  bool can_start() const { return state_ == State::kRunning && asked(false, &Rail::do_can_start); }
  /// Slices are started in the same order on every rank.
  void start(const Slice& slice, Time now);
  /// A call has begun that does not use this rail. A peer that uses the rail for it has made another call.
  void skip_call(Time now);
  /// Whether this rail received a sign of life from the peer's process a moment ago.
  bool heard_recently(int peer, Time now) const { return asked(false, &Rail::do_heard_recently, peer, now); }
  Time deadline() const final { return thrown_ ? 0 : asked(Time{0}, &Rail::do_deadline); }
  void expire(Time now) final;
  /// Drops all slices in progress without completing them: the communicator is being closed or has failed.
  void abort();
  /// Drops all slices in progress without completing them and without telling the peers. The slices' memory
  /// is the caller's again. The rail reports nothing until `restart`. May be repeated.
  void halt(Time now);
  /// Joins the peers again after `halt`. Packets of older incarnations are dropped. Peers may be late;
  /// `rail_failed` reports failures. Throws std::logic_error if the rail is not halted, or was in that
  /// incarnation before. After an exception the rail is halted.
  void restart(const Restart& restart, Time now);
  /// Whether the rail has joined all peers. Slices that start before this wait.
  bool ready() const { return state_ == State::kRunning && asked(false, &Rail::do_ready); }
  /// This rank's next chunk number for each aggregation tree, in order, or for its connection. Empty if the
  /// rail does not number chunks for a switch.
  std::vector<std::uint64_t> next_chunks() const;
  /// Tells the peers why this rank gives up, if the rail can.
  void announce(const Failure& failure, Time now);
  /// Says goodbye. No slice may be in progress. `closed` is true when no peer needs this rank any more.
  void close(Time now);
  bool closed() const { return broken_ || asked(true, &Rail::do_closed); }
  RailStats stats() const;
  /// Grows with every event that advances slices. A rail with slices is stuck if this number does not grow.
  std::uint64_t progress() const { return asked(std::uint64_t{0}, &Rail::do_progress); }
  /// One per aggregation tree, if the rail has any.
  virtual std::vector<GroupStats> groups() const { return {}; }

  void handler_failed(const std::exception& error, Time now) final;

 protected:
  virtual bool do_can_start() const { return true; }
  virtual void do_start(const Slice& slice, Time now) = 0;
  virtual void do_skip_call(Time) {}
  virtual bool do_heard_recently(int, Time) const { return false; }
  virtual Time do_deadline() const = 0;
  virtual void do_expire(Time now) = 0;
  virtual void do_abort() = 0;
  virtual void do_halt(Time now) = 0;
  virtual void do_restart(const Restart& restart, Time now) = 0;
  virtual bool do_ready() const = 0;
  virtual std::vector<std::uint64_t> do_next_chunks() const { return {}; }
  virtual void do_announce(const Failure&, Time) {}
  virtual void do_close(Time) {}
  virtual bool do_closed() const { return true; }
  virtual RailStats do_stats() const = 0;
  virtual std::uint64_t do_progress() const = 0;

  RailListener& listener_;

 private:
  enum class State { kRunning, kHalted, kHaltFailed, kAborted };

  /// Returns the rail's answer, or `otherwise` if the rail throws. Then `expire` soon throws the same error.
  template <typename Answer, typename Question, typename... Args>
  Answer asked(Answer otherwise, Question question, Args... args) const {
    try {
      return (this->*question)(args...);
    } catch (const std::exception& error) {
      thrown_ = error.what();
      return otherwise;
    }
  }
  template <typename Action>
  void as_owner(const Action& action);
  template <typename Action>
  bool attempt(const Action& action);
  template <typename Action>
  void contained(Time now, const Action& action);
  bool stop(Time now);
  void suspend();
  void resume();

  EventLoop* const loop_;
  State state_ = State::kRunning;
  bool broken_ = false;                          // the rail has thrown since the last restart
  mutable std::optional<std::string> thrown_{};  // the error that `asked` has caught
  mutable RailStats stats_{};                    // the last known counts
};

}  // namespace railweave
