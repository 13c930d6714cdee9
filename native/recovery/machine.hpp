// SPDX-License-Identifier: Apache-2.0
// What is behind Recovery: the parts, and who of them hears of what.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recovery/coordinator.hpp"
#include "recovery/datagram.hpp"
#include "recovery/line.hpp"
#include "recovery/member.hpp"
#include "recovery/outbox.hpp"
#include "recovery/progress.hpp"
#include "recovery/pulse.hpp"
#include "recovery/types.hpp"
#include "recovery/vitals.hpp"

namespace railweave::recovery {

/// One rank's; see Recovery for what its functions are told. Rank 0 has the coordinator beside its member.
class Machine {
 public:
  Machine(const Options& options, Time now)
      : options_(options),
        shape_{.token = options.token, .world_size = options.world_size, .rails = options.rails},
        pulse_(options, now),
        progress_(options, now),
        vitals_(options, now),
        member_(options),
        said_(member_.report()),
        lines_(static_cast<std::size_t>(options.rank == 0 ? options.world_size - 1 : 1)),
        next_beat_(now),
        outbox_(options.rank, shape_) {
    if (options.rank == 0) coordinator_.emplace(options, now);
    if (coordinator_) ordered_ = coordinator_->order();
  }

  void receive(std::size_t rail, int rank, Bytes datagram, Time now);
  void leave(Time now);
  void expire(Time now);
  Time deadline() const;
  std::optional<Outgoing> transmit(Time now);
  std::optional<Event> poll();

  /// Lets the member change, then the agreement go on from there.
  template <typename Change>
  void change(Time now, Change change) {
    if (lost_ || leaving_) return;
    change(member_);
    agree(now);
  }
  void refused(std::size_t rail, int rank, Time now) {
    if (!lost_ && !leaving_) vitals_.refused(rail, rank, now);
  }
  Progress& progress() { return progress_; }
  Duration leeway(Time now) const { return pulse_.leeway(now); }
  const Member& member() const { return member_; }
  std::string doubt(std::size_t rail, Time now) const;
  Stats stats;

 private:
  int neighbour(int distance) const {
    return (options_.rank + distance + options_.world_size) % options_.world_size;
  }
  Line& line(int rank) { return lines_[options_.rank == 0 ? static_cast<std::size_t>(rank - 1) : 0]; }

  void take(std::size_t rail, int rank, const Beat& beat, Time now);
  void take(std::size_t rail, int rank, const Stamped& stamped, Time now);
  void take(std::size_t rail, int rank, const Farewell& farewell, Time now);
  void judge_rails(Time now);
  void agree(Time now);
  void obey(const Order& order);
  void say_farewell(const Farewell& farewell);
  void beat(Time now);
  void collect(Time now);
  template <typename State>
  void collect(int rank, const State& state, Time now);

  const Options options_;
  const Shape shape_;
  Pulse pulse_;
  Progress progress_;
  Vitals vitals_;
  Member member_;
  std::optional<Coordinator> coordinator_;

  Report said_;    // the newest that rank 0 is told; serial_ counts its changes
  Order ordered_;  // rank 0: the newest that all are told
  std::uint32_t serial_ = 0;
  std::vector<Line> lines_;  // rank 0: to every other; others: to rank 0

  Time next_beat_;
  std::uint32_t tick_ = 0;
  Standing told_{};  // what the agent knows that all ranks have reached
  std::optional<PeerLost> lost_;
  bool lost_told_ = false;
  bool leaving_ = false;  // this rank or another has left
  Outbox outbox_;
};

}  // namespace railweave::recovery
