// SPDX-License-Identifier: Apache-2.0
// The recovery machine of one rank: which rails live, agreed among all ranks. No I/O, no clock.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "recovery/types.hpp"

namespace railweave::recovery {

class Machine;

/// Driven as ina::Endpoint is: bytes and the time go in; bytes, a deadline and events come out. After every
/// turn, poll all events, then transmit all datagrams. Before `expire`, hand in all datagrams that have come:
/// what lies unread in a socket must not look like silence.
class Recovery {
 public:
  /// Throws std::invalid_argument for options out of range.
  Recovery(const Options& options, Time now);
  ~Recovery();
  Recovery(Recovery&&) noexcept;

  /// A datagram that came on `rail` from the address of `rank`.
  void receive(std::size_t rail, int rank, Bytes datagram, Time now);
  /// A port unreachable came for a datagram sent to `rank`: nobody listens there any more.
  void unreachable(std::size_t rail, int rank, Time now);
  /// The rail's main channel cannot go on by itself: a connection broke, it stalls, it lags. Until it is
  /// halted.
  void suspect(std::size_t rail, std::string reason, Time now);
  /// Something stands in the way of the rail on this host, until it is cleared by "".
  void set_obstacle(std::size_t rail, std::string reason, Time now);
  /// All calls before this one are complete here.
  void completed(std::uint32_t op, Time now);
  /// All calls before this one have been submitted here.
  void submitted(std::uint32_t op, Time now);
  /// The answer to a Freeze. Main channels that are not alive in it and of which `halted` has not told count
  /// as halted without marks.
  void frozen(const Freeze& freeze, const Position& position, Time now);
  /// The rail's main channel is halted; its marks then (Rail::marks).
  void halted(std::size_t rail, std::vector<std::uint64_t> marks, Time now);
  /// The answer to a Restart: whether the trial's result was right. What goes wrong later is for `suspect`.
  void restarted(std::size_t rail, std::uint32_t incarnation, bool passed, Time now);
  /// This rank is done and so are all others with it: tells them that its silence means nothing. From here
  /// on, and once another has left, no rail is suspected and no rank is lost.
  void leave(Time now);

  Time deadline() const;
  void expire(Time now);
  std::optional<Outgoing> transmit(Time now);
  std::optional<Event> poll();

  std::uint32_t epoch() const;
  RailSet alive() const;
  /// Whether the beats of all other ranks have gone on lately: no process stands still, as far as is known.
  bool all_awake(Time now) const;
  /// Up to when all ranks are known to have run; what they have not done since says nothing yet.
  Time all_ran_until(Time now) const;
  /// What every patience grows by since processes run late.
  Duration leeway(Time now) const;
  /// What is wrong with a rail, as far as this rank knows, also with the last one that is left; empty if
  /// nothing is.
  std::string doubt(std::size_t rail, Time now) const;
  const Stats& stats() const;

 private:
  std::unique_ptr<Machine> machine_;
};

}  // namespace railweave::recovery
