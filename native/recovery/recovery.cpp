// SPDX-License-Identifier: Apache-2.0
#include "recovery/recovery.hpp"

#include <stdexcept>
#include <string>
#include <utility>

#include "recovery/machine.hpp"

namespace railweave::recovery {
namespace {

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
Time Recovery::all_ran_until(Time now) const { return machine_->progress().all_ran_until(now); }
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
Duration Recovery::leeway(Time now) const { return machine_->leeway(now); }
std::string Recovery::doubt(std::size_t rail, Time now) const { return machine_->doubt(rail, now); }
const Stats& Recovery::stats() const { return machine_->stats; }

}  // namespace railweave::recovery
