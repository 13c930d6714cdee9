// SPDX-License-Identifier: Apache-2.0
#include "recovery/recovery.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace railweave::recovery {
namespace {

constexpr int kCopies = 3;  // of a goodbye on each rail: nobody repeats it

const Options& checked(const Options& options) {
  if (options.world_size < 2 || options.world_size > kMaxRanks)
    throw std::invalid_argument("recovery: world size " + std::to_string(options.world_size) + "; 2 to " +
                                std::to_string(kMaxRanks) + " ranks can recover");
  if (options.rank < 0 || options.rank >= options.world_size)
    throw std::invalid_argument("recovery: rank " + std::to_string(options.rank) + " of " +
                                std::to_string(options.world_size));
  if (options.rails < 1 || options.rails > kMaxRails)
    throw std::invalid_argument("recovery: " + std::to_string(options.rails) + " rails; 1 to " +
                                std::to_string(kMaxRails) + " can be watched");
  if (options.heartbeat <= 0 || options.least_silence < options.heartbeat ||
      options.most_silence < options.least_silence || options.hold <= 0 || options.most_hold < options.hold ||
      options.trial <= 0 || options.health <= 0 || options.peer_timeout <= options.most_silence)
    throw std::invalid_argument(
        "recovery: times must be positive, and heartbeat <= least silence <= most silence < peer timeout, "
        "hold <= most hold");
  return options;
}

}  // namespace

Recovery::Recovery(const Options& options, Time now)
    : options_(checked(options)),
      shape_{.world_size = options.world_size, .rails = options.rails},
      key_(key_of(options.secret, options.rank)),
      windows_(static_cast<std::size_t>(options.world_size) * options.rails),
      refused_(windows_.size()),
      answer_at_(static_cast<std::size_t>(options.world_size), now),
      pulse_(options, now),
      progress_(options, now),
      vitals_(options, now),
      member_(options),
      status_(member_.status()),
      lines_(static_cast<std::size_t>(options.rank == 0 ? options.world_size - 1 : 1)),
      next_heartbeat_(now),
      outbox_(options.rank, shape_, options.secret) {
  if (options.rank == 0) coordinator_.emplace(options, now);
  if (coordinator_) announced_ = coordinator_->decision();
}

// --- what the agent says ---

// Changes the member, then continues the agreement.
template <typename Change>
void Recovery::change(Time now, Change change) {
  if (lost_ || leaving_) return;
  change(member_);
  agree(now);
}

// A quote proves that the sender of the ICMP error saw a recent datagram. Each datagram counts once. Hosts
// may quote only the beginning of a long datagram; inquiries are short enough.
std::optional<Refusal> Recovery::unreachable(std::size_t rail, int rank, Bytes quoted, Time now) {
  if (lost_ || leaving_ || rank == options_.rank) return std::nullopt;
  vitals_.doubt(rank);
  const auto decoded = decode(quoted, shape_, key_of(options_.secret, rank));
  const auto* sent = std::get_if<Datagram>(&decoded);
  if (sent == nullptr || sent->sender != options_.rank || sent->rail != rail) {
    ++stats_.strangers;
    return Refusal::kStranger;
  }
  const bool late = sent->sequence + ReplayWindow::kWidth <= outbox_.last_number(rank, rail);
  if (late || !refused_[static_cast<std::size_t>(rank) * shape_.rails + rail].take(sent->sequence)) {
    ++stats_.replayed;
    return Refusal::kReplayed;
  }
  vitals_.refused(rail, rank, now);
  return std::nullopt;
}
void Recovery::suspect(std::size_t rail, std::string reason, Time now) {
  change(now, [&](Member& member) { member.suspect(rail, std::move(reason)); });
}
void Recovery::set_obstacle(std::size_t rail, std::string reason, Time now) {
  change(now, [&](Member& member) { member.set_obstacle(rail, std::move(reason)); });
}
void Recovery::prepared(const Prepare& prepare, const Position& position, Time now) {
  change(now, [&](Member& member) { member.prepared(prepare, position); });
}
void Recovery::halted(std::size_t rail, std::vector<std::uint64_t> next_chunks, Time now) {
  change(now, [&](Member& member) { member.halted(rail, std::move(next_chunks)); });
}
void Recovery::restarted(std::size_t rail, std::uint32_t incarnation, bool passed, Time now) {
  change(now, [&](Member& member) { member.restarted(rail, incarnation, passed); });
}

// --- what comes in ---

std::optional<Refusal> Recovery::receive(std::size_t rail, int rank, Bytes datagram, Time now) {
  const auto received = understood(rail, rank, datagram);
  if (const auto* refusal = std::get_if<Refusal>(&received)) {
    ++(*refusal == Refusal::kStranger    ? stats_.strangers
       : *refusal == Refusal::kMalformed ? stats_.malformed
                                         : stats_.replayed);
    return *refusal;
  }
  ++stats_.received;
  if (lost_) return std::nullopt;
  vitals_.hear(rank);
  std::visit([&](const auto& body) { take(rail, rank, body, now); }, std::get<Datagram>(received).body);
  return std::nullopt;
}

std::variant<Datagram, Refusal> Recovery::understood(std::size_t rail, int rank, Bytes datagram) {
  auto decoded = decode(datagram, shape_, key_);
  const auto* said = std::get_if<Datagram>(&decoded);
  if (said == nullptr) return decoded;
  if (said->sender != rank || said->rail != rail || !may_say(rank, said->body)) return Refusal::kMalformed;
  if (!windows_[static_cast<std::size_t>(rank) * shape_.rails + rail].take(said->sequence))
    return Refusal::kReplayed;
  return decoded;
}

// Heartbeats come from the predecessor, decisions from rank 0. Statuses go to rank 0.
bool Recovery::may_say(int rank, const Body& body) const {
  if (rank == options_.rank) return false;
  if (std::holds_alternative<Heartbeat>(body)) return rank == neighbour(-1);
  const auto* stamped = std::get_if<Stamped>(&body);
  if (stamped == nullptr) return true;
  return (std::holds_alternative<Decision>(stamped->state) ? rank : options_.rank) == 0;
}

void Recovery::take(std::size_t rail, int, const Heartbeat& heartbeat, Time now) {
  pulse_.hear(rail, heartbeat.tick, now);
  progress_.hear(heartbeat, now);
}

void Recovery::take(std::size_t, int rank, const Stamped& stamped, Time now) {
  if (!line(rank).take(stamped.stamp, serial_)) return;
  if (const auto* decision = std::get_if<Decision>(&stamped.state)) {
    follow(*decision);
  } else if (!coordinator_->take(rank, std::get<Status>(stamped.state), now)) {
    ++stats_.violations;
  }
  agree(now);
}

void Recovery::take(std::size_t, int, const Goodbye& goodbye, Time) {
  if (goodbye.dead && goodbye.rank == options_.rank) return;  // wrong: this rank lives
  if (goodbye.dead && !leaving_) {
    lost_ = PeerLost{.rank = goodbye.rank, .reason = goodbye.reason};
    say_goodbye(goodbye);
  } else if (!goodbye.dead && !std::exchange(leaving_, true)) {
    say_goodbye(goodbye);
  }
}

/// Sends one answer to all copies of an inquiry, which come on several rails.
void Recovery::take(std::size_t, int rank, const Inquiry& inquiry, Time now) {
  Time& answer_at = answer_at_[static_cast<std::size_t>(rank)];
  if (inquiry.answer || now < answer_at) return;
  answer_at = now + options_.heartbeat / 2;
  outbox_.push(rank, Inquiry{.answer = true});
}

void Recovery::follow(const Decision& decision) {
  const std::uint32_t before = member_.epoch();
  if (!member_.follow(decision)) ++stats_.violations;
  stats_.rounds += member_.epoch() - before;
}

/// Rank 0 follows its own decisions, at once and without datagrams.
void Recovery::agree(Time now) {
  for (;;) {
    if (coordinator_ && coordinator_->decision() != announced_) {
      announced_ = coordinator_->decision();
      ++serial_;
      for (Line& each : lines_) each.send_soon();
      follow(announced_);
    }
    Status status = member_.status();
    if (status == status_) return;
    status_ = std::move(status);
    if (coordinator_) {
      coordinator_->take(0, status_, now);
    } else {
      ++serial_;
      lines_[0].send_soon();
    }
  }
}

// --- time ---

void Recovery::judge_rails(Time now) {
  const RailSet before = pulse_.silent();
  if (!pulse_.judge(now)) return;
  for (std::size_t rail = 0; rail < options_.rails; ++rail) {
    if (!has(pulse_.silent(), rail)) {
      member_.set_silence(rail, "");
    } else if (!has(before, rail)) {
      ++stats_.suspicions;
      member_.set_silence(rail, "nothing from rank " + std::to_string(neighbour(-1)) + " for " +
                                    std::to_string(pulse_.silence(rail, now) / kMillisecond) +
                                    " ms, but on other rails");
    }
  }
}

void Recovery::expire(Time now) {
  if (lost_) return;
  progress_.expire(now);
  if (now - next_heartbeat_ > options_.heartbeat) pulse_.slept(now - next_heartbeat_, now);
  if (!leaving_) {
    judge_rails(now);
    lost_ = vitals_.judge(member_.expected(), pulse_.last_heard(), options_.most_silence + leeway(now), now);
    if (lost_)
      return say_goodbye(
          {.rank = static_cast<std::uint16_t>(lost_->rank), .dead = true, .reason = lost_->reason});
    if (coordinator_) coordinator_->expire(now);
    agree(now);
  }
  if (now >= next_heartbeat_) heartbeat(now);
}

std::string Recovery::suspicion(std::size_t rail, Time now) const {
  std::string known = coordinator_ ? coordinator_->objection(rail) : member_.status().channels[rail].reason;
  const Duration silence = pulse_.last_heard() == kNever ? 0 : now - pulse_.last_heard();
  if (!known.empty() || silence <= options_.most_silence) return known;
  return "rank " + std::to_string(neighbour(-1)) + " has not been heard on any rail for " +
         std::to_string(silence / kMillisecond) + " ms";
}

Time Recovery::deadline() const {
  if (lost_) return kNever;
  Time at = next_heartbeat_;
  for (const Line& each : lines_) at = std::min(at, each.deadline(serial_));
  if (leaving_) return at;
  if (coordinator_) at = std::min(at, coordinator_->deadline());
  return std::min(at, pulse_.deadline(next_heartbeat_));
}

// --- what goes out ---

void Recovery::heartbeat(Time now) {
  next_heartbeat_ = std::max(next_heartbeat_ + options_.heartbeat, now + options_.heartbeat / 2);
  Heartbeat heartbeat{.tick = ++tick_};
  progress_.fill(heartbeat);
  outbox_.push(neighbour(1), std::move(heartbeat));
  if (leaving_) return;
  for (const int rank : vitals_.asked(now)) outbox_.push(rank, Inquiry{});
}

/// Sends the goodbye to some near and far ranks on the ring. These pass it on, so it has several paths.
void Recovery::say_goodbye(const Goodbye& goodbye) {
  outbox_.clear();
  for (int copy = 0; copy < kCopies; ++copy) {
    for (int distance = 1; distance < options_.world_size; distance *= 2) {
      for (const int rank : {neighbour(distance), neighbour(-distance)})
        if (rank != options_.rank) outbox_.push(rank, goodbye);
    }
  }
}

void Recovery::leave(Time) {
  if (!lost_ && !std::exchange(leaving_, true))
    say_goodbye({.rank = static_cast<std::uint16_t>(options_.rank), .dead = false});
}

template <typename State>
void Recovery::collect(int rank, const State& state, Time now) {
  if (!line(rank).due(serial_, now)) return;
  const Stamp stamp = line(rank).sent(serial_, now + options_.heartbeat / 2);
  outbox_.push(rank, Stamped{stamp, state});
}

void Recovery::collect(Time now) {
  if (options_.rank != 0) return collect(0, status_, now);
  for (int rank = 1; rank < options_.world_size; ++rank) collect(rank, announced_, now);
}

std::optional<Outgoing> Recovery::transmit(Time now) {
  if (outbox_.empty() && !lost_) collect(now);
  const auto outgoing = outbox_.next();
  stats_.sent += outgoing.has_value();
  return outgoing;
}

std::optional<Event> Recovery::poll() {
  if (auto event = member_.poll()) return event;
  if (lost_ && !std::exchange(lost_reported_, true)) return Event{*lost_};
  if (lost_) return std::nullopt;
  const Standing& least = progress_.least();
  if (std::exchange(reported_.submitted, least.submitted) != least.submitted)
    return Event{AllSubmitted{least.submitted}};
  if (std::exchange(reported_.completed, least.completed) != least.completed)
    return Event{AllCompleted{least.completed}};
  return std::nullopt;
}

}  // namespace railweave::recovery
