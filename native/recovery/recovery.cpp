// SPDX-License-Identifier: Apache-2.0
#include "recovery/recovery.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "recovery/coordinator.hpp"
#include "recovery/datagram.hpp"
#include "recovery/line.hpp"
#include "recovery/member.hpp"
#include "recovery/outbox.hpp"
#include "recovery/progress.hpp"
#include "recovery/pulse.hpp"
#include "recovery/vitals.hpp"

namespace railweave::recovery {
namespace {

constexpr int kCopies = 3;  // of a farewell on each rail: nobody asks for it again

void check(const Options& options) {
  if (options.world_size < 2 || options.world_size > kMaxRanks)
    throw std::invalid_argument("recovery: world size " + std::to_string(options.world_size) + "; 2 to " +
                                std::to_string(kMaxRanks) + " ranks can recover");
  if (options.rank < 0 || options.rank >= options.world_size)
    throw std::invalid_argument("recovery: rank " + std::to_string(options.rank) + " of " +
                                std::to_string(options.world_size));
  if (options.rails < 1 || options.rails > kMaxRails)
    throw std::invalid_argument("recovery: " + std::to_string(options.rails) + " rails; 1 to " +
                                std::to_string(kMaxRails) + " can be watched");
  if (options.beat <= 0 || options.least_silence < options.beat ||
      options.most_silence < options.least_silence || options.hold <= 0 || options.most_hold < options.hold ||
      options.trial <= 0 || options.health <= 0 || options.peer_timeout <= options.most_silence)
    throw std::invalid_argument(
        "recovery: times must be positive, and beat <= least silence <= most silence < peer timeout, "
        "hold <= most hold");
}

}  // namespace

class Recovery::Machine {
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

// --- what comes in ---

void Recovery::Machine::receive(std::size_t rail, int rank, Bytes datagram, Time now) {
  const auto decoded = decode(datagram, shape_);
  if (const auto* refusal = std::get_if<Refusal>(&decoded)) {
    ++(*refusal == Refusal::kStranger ? stats.strangers : stats.malformed);
    return;
  }
  const Datagram& understood = std::get<Datagram>(decoded);
  if (understood.sender != rank || understood.rail != rail || rank == options_.rank) {
    ++stats.malformed;
    return;
  }
  ++stats.received;
  if (lost_) return;
  vitals_.hear(rank);
  std::visit([&](const auto& body) { take(rail, rank, body, now); }, understood.body);
}

void Recovery::Machine::take(std::size_t rail, int rank, const Beat& beat, Time now) {
  if (rank != neighbour(-1)) {
    ++stats.malformed;
    return;
  }
  pulse_.hear(rail, beat.tick, now);
  progress_.hear(beat, now);
}

void Recovery::Machine::take(std::size_t, int rank, const Stamped& stamped, Time now) {
  const auto* order = std::get_if<Order>(&stamped.state);
  if (order != nullptr ? rank != 0 : options_.rank != 0) {  // orders come from rank 0, reports go there
    ++stats.malformed;
    return;
  }
  if (!line(rank).take(stamped.stamp, serial_)) return;
  if (order != nullptr) {
    obey(*order);
  } else if (!coordinator_->take(rank, std::get<Report>(stamped.state), now)) {
    ++stats.violations;
  }
  agree(now);
}

void Recovery::Machine::take(std::size_t, int, const Farewell& farewell, Time) {
  if (farewell.dead && farewell.rank == options_.rank) return;  // a rank that hears this of itself is not
  if (farewell.dead && !leaving_) {
    lost_ = PeerLost{.rank = farewell.rank, .reason = farewell.reason};
    say_farewell(farewell);
  } else if (!farewell.dead && !std::exchange(leaving_, true)) {
    say_farewell(farewell);
  }
}

void Recovery::Machine::obey(const Order& order) {
  const std::uint32_t before = member_.epoch();
  if (!member_.obey(order)) ++stats.violations;
  stats.rounds += member_.epoch() - before;
}

/// Rank 0 is one of those it orders, at once and without datagrams.
void Recovery::Machine::agree(Time now) {
  for (;;) {
    if (coordinator_ && coordinator_->order() != ordered_) {
      ordered_ = coordinator_->order();
      ++serial_;
      for (Line& each : lines_) each.hurry();
      obey(ordered_);
    }
    Report report = member_.report();
    if (report == said_) return;
    said_ = std::move(report);
    if (coordinator_) {
      coordinator_->take(0, said_, now);
    } else {
      ++serial_;
      lines_[0].hurry();
    }
  }
}

// --- time ---

void Recovery::Machine::judge_rails(Time now) {
  const RailSet before = pulse_.silent();
  if (!pulse_.judge(now)) return;
  for (std::size_t rail = 0; rail < options_.rails; ++rail) {
    if (!has(pulse_.silent(), rail)) {
      member_.set_silence(rail, "");
    } else if (!has(before, rail)) {
      ++stats.suspicions;
      member_.set_silence(rail, "nothing from rank " + std::to_string(neighbour(-1)) + " for " +
                                    std::to_string(pulse_.silence(rail, now) / kMillisecond) +
                                    " ms, but on other rails");
    }
  }
}

void Recovery::Machine::expire(Time now) {
  if (lost_) return;
  if (now - next_beat_ > 2 * options_.beat) pulse_.slept(now - next_beat_, now);
  if (!leaving_) {
    judge_rails(now);
    lost_ = vitals_.judge(member_.expected(), pulse_.last_heard(), now);
    if (lost_)
      return say_farewell(
          {.rank = static_cast<std::uint16_t>(lost_->rank), .dead = true, .reason = lost_->reason});
    if (coordinator_) coordinator_->expire(now);
    agree(now);
  }
  if (now >= next_beat_) beat(now);
}

std::string Recovery::Machine::doubt(std::size_t rail, Time now) const {
  std::string known = coordinator_ ? coordinator_->complaint(rail) : member_.report().lanes[rail].reason;
  const Duration silence = pulse_.last_heard() == kNever ? 0 : now - pulse_.last_heard();
  if (!known.empty() || silence <= options_.most_silence) return known;
  return "rank " + std::to_string(neighbour(-1)) + " has not been heard on any rail for " +
         std::to_string(silence / kMillisecond) + " ms";
}

Time Recovery::Machine::deadline() const {
  if (lost_) return kNever;
  Time at = next_beat_;
  for (const Line& each : lines_) at = std::min(at, each.deadline(serial_));
  if (leaving_) return at;
  if (coordinator_) at = std::min(at, coordinator_->deadline());
  return std::min(at, pulse_.deadline(next_beat_));
}

// --- what goes out ---

void Recovery::Machine::beat(Time now) {
  next_beat_ = std::max(next_beat_ + options_.beat, now + options_.beat / 2);
  Beat beat{.tick = ++tick_};
  progress_.tell(beat);
  outbox_.push(neighbour(1), std::move(beat));
}

/// To some ranks near and far on the ring, who pass it on: so it has many ways to everybody.
void Recovery::Machine::say_farewell(const Farewell& farewell) {
  outbox_.clear();
  for (int copy = 0; copy < kCopies; ++copy) {
    for (int distance = 1; distance < options_.world_size; distance *= 2) {
      for (const int rank : {neighbour(distance), neighbour(-distance)})
        if (rank != options_.rank) outbox_.push(rank, farewell);
    }
  }
}

void Recovery::Machine::leave(Time) {
  if (!lost_ && !std::exchange(leaving_, true))
    say_farewell({.rank = static_cast<std::uint16_t>(options_.rank), .dead = false});
}

template <typename State>
void Recovery::Machine::collect(int rank, const State& state, Time now) {
  if (!line(rank).due(serial_, now)) return;
  const Stamp stamp = line(rank).sent(serial_, now + options_.beat / 2);
  outbox_.push(rank, Stamped{stamp, state});
}

void Recovery::Machine::collect(Time now) {
  if (options_.rank != 0) return collect(0, said_, now);
  for (int rank = 1; rank < options_.world_size; ++rank) collect(rank, ordered_, now);
}

std::optional<Outgoing> Recovery::Machine::transmit(Time now) {
  if (outbox_.empty() && !lost_) collect(now);
  const auto outgoing = outbox_.next();
  stats.sent += outgoing.has_value();
  return outgoing;
}

std::optional<Event> Recovery::Machine::poll() {
  if (auto event = member_.poll()) return event;
  if (lost_ && !std::exchange(lost_told_, true)) return Event{*lost_};
  if (lost_) return std::nullopt;
  const Standing& least = progress_.least();
  if (std::exchange(told_.submitted, least.submitted) != least.submitted)
    return Event{AllSubmitted{least.submitted}};
  if (std::exchange(told_.completed, least.completed) != least.completed)
    return Event{AllCompleted{least.completed}};
  return std::nullopt;
}

// --- the face ---

Recovery::Recovery(const Options& options, Time now) {
  check(options);
  machine_ = std::make_unique<Machine>(options, now);
}
Recovery::~Recovery() = default;
Recovery::Recovery(Recovery&&) noexcept = default;

void Recovery::receive(std::size_t rail, int rank, Bytes datagram, Time now) {
  machine_->receive(rail, rank, datagram, now);
}
void Recovery::unreachable(std::size_t rail, int rank, Time now) { machine_->refused(rail, rank, now); }
void Recovery::suspect(std::size_t rail, std::string reason, Time now) {
  machine_->change(now, [&](Member& member) { member.suspect(rail, std::move(reason)); });
}
void Recovery::set_obstacle(std::size_t rail, std::string reason, Time now) {
  machine_->change(now, [&](Member& member) { member.set_obstacle(rail, std::move(reason)); });
}
void Recovery::completed(std::uint32_t op, Time) { machine_->progress().completed(op); }
void Recovery::submitted(std::uint32_t op, Time) { machine_->progress().submitted(op); }
bool Recovery::all_awake(Time now) const { return machine_->progress().all_awake(now); }
void Recovery::frozen(const Freeze& freeze, const Position& position, Time now) {
  machine_->change(now, [&](Member& member) { member.frozen(freeze, position); });
}
void Recovery::halted(std::size_t rail, std::vector<std::uint64_t> marks, Time now) {
  machine_->change(now, [&](Member& member) { member.halted(rail, std::move(marks)); });
}
void Recovery::restarted(std::size_t rail, std::uint32_t incarnation, bool passed, Time now) {
  machine_->change(now, [&](Member& member) { member.restarted(rail, incarnation, passed); });
}
void Recovery::leave(Time now) { machine_->leave(now); }
Time Recovery::deadline() const { return machine_->deadline(); }
void Recovery::expire(Time now) { machine_->expire(now); }
std::optional<Outgoing> Recovery::transmit(Time now) { return machine_->transmit(now); }
std::optional<Event> Recovery::poll() { return machine_->poll(); }
std::uint32_t Recovery::epoch() const { return machine_->member().epoch(); }
RailSet Recovery::alive() const { return machine_->member().alive(); }
std::string Recovery::doubt(std::size_t rail, Time now) const { return machine_->doubt(rail, now); }
const Stats& Recovery::stats() const { return machine_->stats; }

}  // namespace railweave::recovery
