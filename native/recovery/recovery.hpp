// SPDX-License-Identifier: Apache-2.0
// The recovery machine of one rank: which rails live, agreed among all ranks. No I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/replay_window.hpp"
#include "recovery/coordinator.hpp"
#include "recovery/datagram.hpp"
#include "recovery/member.hpp"
#include "recovery/outbox.hpp"
#include "recovery/progress.hpp"
#include "recovery/pulse.hpp"
#include "recovery/types.hpp"
#include "recovery/vitals.hpp"

namespace railweave::recovery {

/// Driven as ina::Endpoint is: bytes and the time go in; bytes, a deadline and events come out. After every
/// turn, poll all events, then transmit all datagrams. Before `expire`, hand in all datagrams that have come:
/// what lies unread in a socket must not look like silence.
class Recovery {
 public:
  /// Throws std::invalid_argument for options out of range.
  Recovery(const Options& options, Time now);

  /// A datagram that came on `rail` from the address of `rank`. Why it is refused; nothing: it is not.
  std::optional<Refusal> receive(std::size_t rail, int rank, Bytes datagram, Time now);
  /// A port unreachable came on `rail` for what was sent to `rank`, and quotes it. Why it is refused.
  std::optional<Refusal> unreachable(std::size_t rail, int rank, Bytes quoted, Time now);
  /// The rail's main channel cannot go on by itself: a connection broke, it stalls, it lags. Until it is
  /// halted.
  void suspect(std::size_t rail, std::string reason, Time now);
  /// Something stands in the way of the rail on this host, until it is cleared by "".
  void set_obstacle(std::size_t rail, std::string reason, Time now);
  /// All calls before this one are complete here.
  void completed(std::uint32_t op) { progress_.completed(op); }
  /// All calls before this one have been submitted here.
  void submitted(std::uint32_t op) { progress_.submitted(op); }
  /// The answer to a Prepare. Main channels that are not alive in it and that `halted` has not reported
  /// count as halted without chunk numbers.
  void prepared(const Prepare& prepare, const Position& position, Time now);
  /// The rail's main channel is halted; its chunk numbers then (Rail::next_chunks).
  void halted(std::size_t rail, std::vector<std::uint64_t> next_chunks, Time now);
  /// The answer to a Restart: whether the trial's result was right. What goes wrong later is for `suspect`.
  void restarted(std::size_t rail, std::uint32_t incarnation, bool passed, Time now);
  /// This rank is done and so are all others with it: its silence means nothing. From here
  /// on, and once another has left, no rail is suspected and no rank is lost.
  void leave(Time now);

  Time deadline() const;
  void expire(Time now);
  std::optional<Outgoing> transmit(Time now);
  std::optional<Event> poll();

  std::uint32_t epoch() const { return member_.epoch(); }
  RailSet alive() const { return member_.alive(); }
  /// How long all ranks have run, as far as is known: what takes long by this clock is not late because a
  /// process stood still.
  Duration ran() const { return progress_.ran(); }
  Time stood_still_until() const { return progress_.stood_still_until(); }
  /// What every patience grows by since processes run late.
  Duration leeway(Time now) const { return pulse_.leeway(now); }
  /// What is wrong with a rail, as far as this rank knows, also with the last one that is left; empty if
  /// nothing is.
  std::string suspicion(std::size_t rail, Time now) const;
  const Stats& stats() const { return stats_; }

 private:
  template <typename Change>
  void change(Time now, Change change);
  int neighbour(int distance) const {
    return (options_.rank + distance + options_.world_size) % options_.world_size;
  }
  Line& line(int rank) { return lines_[options_.rank == 0 ? static_cast<std::size_t>(rank - 1) : 0]; }

  std::variant<Datagram, Refusal> understood(std::size_t rail, int rank, Bytes datagram);
  bool may_say(int rank, const Body& body) const;
  void take(std::size_t rail, int rank, const Heartbeat& heartbeat, Time now);
  void take(std::size_t rail, int rank, const Stamped& stamped, Time now);
  void take(std::size_t rail, int rank, const Goodbye& goodbye, Time now);
  void take(std::size_t rail, int rank, const Inquiry& inquiry, Time now);
  void judge_rails(Time now);
  void agree(Time now);
  void follow(const Decision& decision);
  void say_goodbye(const Goodbye& goodbye);
  void heartbeat(Time now);
  void collect(Time now);
  template <typename State>
  void collect(int rank, const State& state, Time now);

  const Options options_;
  const Shape shape_;
  const Key key_;                      // of what is sent to this rank
  std::vector<ReplayWindow> windows_;  // by sender and rail
  std::vector<ReplayWindow> refused_;  // by receiver and rail: of what came back
  std::vector<Time> answer_at_;        // by rank: not before, to its inquiries
  Pulse pulse_;
  Progress progress_;
  Vitals vitals_;
  Member member_;
  std::optional<Coordinator> coordinator_;

  Status status_;       // the newest, for rank 0; serial_ counts its changes
  Decision announced_;  // rank 0: the newest, for all
  std::uint32_t serial_ = 0;
  std::vector<Line> lines_;  // rank 0: to every other; others: to rank 0

  Time next_heartbeat_;
  std::uint32_t tick_ = 0;
  Standing reported_{};  // what the agent knows that all ranks have reached
  std::optional<PeerLost> lost_;
  bool lost_reported_ = false;
  bool leaving_ = false;  // this rank or another has left
  Outbox outbox_;
  Stats stats_{};
};

}  // namespace railweave::recovery
