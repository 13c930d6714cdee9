// SPDX-License-Identifier: Apache-2.0
// The recovery machine of one rank: all ranks agree on the rails that are alive. No I/O, no clock.
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

/// Has the same interface as ina::Endpoint: bytes and the time go in; bytes, a deadline and events come out.
/// After every turn, poll all events, then transmit all datagrams. Before `expire`, hand in all received
/// datagrams: unread data in a socket must not look like silence.
class Recovery {
 public:
  /// Throws std::invalid_argument for options out of range.
  Recovery(const Options& options, Time now);

  /// Takes a datagram that came on `rail` from the address of `rank`. Returns the refusal, or nothing.
  std::optional<Refusal> receive(std::size_t rail, int rank, Bytes datagram, Time now);
  /// Takes an ICMP port unreachable that quotes a datagram to `rank` on `rail`. Returns the refusal, if any.
  std::optional<Refusal> unreachable(std::size_t rail, int rank, Bytes quoted, Time now);
  /// The rail's main channel needs a halt: a connection broke, or the channel stalls or lags.
  void suspect(std::size_t rail, std::string reason, Time now);
  /// This host has an obstacle on the rail; "" clears the reason.
  void set_obstacle(std::size_t rail, std::string reason, Time now);
  /// All calls before this one are complete on this rank.
  void completed(std::uint32_t op) { progress_.completed(op); }
  /// All calls before this one have been submitted on this rank.
  void submitted(std::uint32_t op) { progress_.submitted(op); }
  /// Answers a Prepare. Main channels outside `prepare.alive` without a report by `halted` count as halted
  /// without chunk numbers.
  void prepared(const Prepare& prepare, const Position& position, Time now);
  /// Says that the rail's main channel is halted. `next_chunks`: its next chunk numbers (Rail::next_chunks).
  void halted(std::size_t rail, std::vector<std::uint64_t> next_chunks, Time now);
  /// Answers a Restart: whether the trial's result was right. Later failures are reported by `suspect`.
  void restarted(std::size_t rail, std::uint32_t incarnation, bool passed, Time now);
  /// This rank is finished and so are all others, so its silence means nothing. After this call, or after
  /// another rank has left, no rail is suspected and no rank is lost.
  void leave(Time now);

  Time deadline() const;
  void expire(Time now);
  std::optional<Outgoing> transmit(Time now);
  std::optional<Event> poll();

  std::uint32_t epoch() const { return member_.epoch(); }
  RailSet alive() const { return member_.alive(); }
  /// How long all ranks have run, to this rank's knowledge. A process that stands still stops this clock, so
  /// the standstill makes nothing late.
  Duration ran() const { return progress_.ran(); }
  Time stood_still_until() const { return progress_.stood_still_until(); }
  /// The addition to every patience for late processes.
  Duration leeway(Time now) const { return pulse_.leeway(now); }
  /// A rail's problem, to this rank's knowledge, also for the last alive rail; empty: no problem.
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
  const Key key_;                      // for datagrams to this rank
  std::vector<ReplayWindow> windows_;  // by sender and rail
  std::vector<ReplayWindow> refused_;  // by receiver and rail: quoted datagrams
  std::vector<Time> answer_at_;        // by rank: earliest time of the next answer to its inquiries
  Pulse pulse_;
  Progress progress_;
  Vitals vitals_;
  Member member_;
  std::optional<Coordinator> coordinator_;

  Status status_;       // this rank's newest, for rank 0; serial_ counts its changes
  Decision announced_;  // rank 0: the newest decision, for all ranks
  std::uint32_t serial_ = 0;
  std::vector<Line> lines_;  // rank 0: to every other rank; others: to rank 0

  Time next_heartbeat_;
  std::uint32_t tick_ = 0;
  Standing reported_{};  // the least standing that the agent has been told
  std::optional<PeerLost> lost_;
  bool lost_reported_ = false;
  bool leaving_ = false;  // this rank or another has left
  Outbox outbox_;
  Stats stats_{};
};

}  // namespace railweave::recovery
