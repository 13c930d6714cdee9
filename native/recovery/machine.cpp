// SPDX-License-Identifier: Apache-2.0
#include "recovery/machine.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

namespace railweave::recovery {
namespace {

constexpr int kCopies = 3;  // of a farewell on each rail: nobody asks for it again

}  // namespace

// --- what comes in ---

void Machine::receive(std::size_t rail, int rank, Bytes datagram, Time now) {
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

void Machine::take(std::size_t rail, int rank, const Beat& beat, Time now) {
  if (rank != neighbour(-1)) {
    ++stats.malformed;
    return;
  }
  pulse_.hear(rail, beat.tick, now);
  progress_.hear(beat, now);
}

void Machine::take(std::size_t, int rank, const Stamped& stamped, Time now) {
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

void Machine::take(std::size_t, int, const Farewell& farewell, Time) {
  if (farewell.dead && farewell.rank == options_.rank) return;  // a rank that hears this of itself is not
  if (farewell.dead && !leaving_) {
    lost_ = PeerLost{.rank = farewell.rank, .reason = farewell.reason};
    say_farewell(farewell);
  } else if (!farewell.dead && !std::exchange(leaving_, true)) {
    say_farewell(farewell);
  }
}

void Machine::obey(const Order& order) {
  const std::uint32_t before = member_.epoch();
  if (!member_.obey(order)) ++stats.violations;
  stats.rounds += member_.epoch() - before;
}

/// Rank 0 is one of those it orders, at once and without datagrams.
void Machine::agree(Time now) {
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

void Machine::judge_rails(Time now) {
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

void Machine::expire(Time now) {
  if (lost_) return;
  if (now - next_beat_ > options_.beat) pulse_.slept(now - next_beat_, now);
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

std::string Machine::doubt(std::size_t rail, Time now) const {
  std::string known = coordinator_ ? coordinator_->complaint(rail) : member_.report().channels[rail].reason;
  const Duration silence = pulse_.last_heard() == kNever ? 0 : now - pulse_.last_heard();
  if (!known.empty() || silence <= options_.most_silence) return known;
  return "rank " + std::to_string(neighbour(-1)) + " has not been heard on any rail for " +
         std::to_string(silence / kMillisecond) + " ms";
}

Time Machine::deadline() const {
  if (lost_) return kNever;
  Time at = next_beat_;
  for (const Line& each : lines_) at = std::min(at, each.deadline(serial_));
  if (leaving_) return at;
  if (coordinator_) at = std::min(at, coordinator_->deadline());
  return std::min(at, pulse_.deadline(next_beat_));
}

// --- what goes out ---

void Machine::beat(Time now) {
  next_beat_ = std::max(next_beat_ + options_.beat, now + options_.beat / 2);
  Beat beat{.tick = ++tick_};
  progress_.tell(beat);
  outbox_.push(neighbour(1), std::move(beat));
}

/// To some ranks near and far on the ring, who pass it on: so it has many ways to everybody.
void Machine::say_farewell(const Farewell& farewell) {
  outbox_.clear();
  for (int copy = 0; copy < kCopies; ++copy) {
    for (int distance = 1; distance < options_.world_size; distance *= 2) {
      for (const int rank : {neighbour(distance), neighbour(-distance)})
        if (rank != options_.rank) outbox_.push(rank, farewell);
    }
  }
}

void Machine::leave(Time) {
  if (!lost_ && !std::exchange(leaving_, true))
    say_farewell({.rank = static_cast<std::uint16_t>(options_.rank), .dead = false});
}

template <typename State>
void Machine::collect(int rank, const State& state, Time now) {
  if (!line(rank).due(serial_, now)) return;
  const Stamp stamp = line(rank).sent(serial_, now + options_.beat / 2);
  outbox_.push(rank, Stamped{stamp, state});
}

void Machine::collect(Time now) {
  if (options_.rank != 0) return collect(0, said_, now);
  for (int rank = 1; rank < options_.world_size; ++rank) collect(rank, ordered_, now);
}

std::optional<Outgoing> Machine::transmit(Time now) {
  if (outbox_.empty() && !lost_) collect(now);
  const auto outgoing = outbox_.next();
  stats.sent += outgoing.has_value();
  return outgoing;
}

std::optional<Event> Machine::poll() {
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

}  // namespace railweave::recovery
