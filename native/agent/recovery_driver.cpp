// SPDX-License-Identifier: Apache-2.0
#include "agent/recovery_driver.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <variant>

#include "agent/agent.hpp"

namespace railweave {
namespace {

std::string milliseconds(Duration duration) { return std::to_string(duration / kMillisecond) + " ms"; }

}  // namespace

Duration patience(const Calls::Laggard& laggard) {
  if (laggard.expected > 0)
    return std::max(timing::kSlowFactor * laggard.expected, laggard.expected + timing::kSlowAllowance);
  return std::max(timing::kUnknownFactor * laggard.others, timing::kUnknownLeast);
}

Duration patience(const Calls::Front& front) {
  if (!front.alone || front.expected == 0) return kNever;
  return std::max(timing::kSlowFactor * front.expected, front.expected + timing::kAloneAllowance);
}

RecoveryDriver::RecoveryDriver(EventLoop& loop, Agent& agent) : loop_(loop), agent_(agent) {}

RecoveryDriver::~RecoveryDriver() {
  if (enabled()) loop_.remove_timed(*this);
}

std::uint16_t RecoveryDriver::open(std::size_t rail, const LocalInterface& at, std::uint64_t rate_bps) {
  if (rail != repairs_.size()) throw std::logic_error("control ports are opened rail by rail, once each");
  auto transport = on_one_port([&] {
    auto made = std::make_unique<TcpTransport>(loop_, TcpTransportOptions{.local = at});
    sockets_.push_back(std::make_unique<ControlSocket>(
        loop_, at, made->port(),
        [this, rail](int rank, Bytes datagram, Time now) { received(rail, rank, datagram, now); },
        [this, rail](int rank, Bytes quoted, Time now) { unreachable(rail, rank, quoted, now); }));
    return made;
  });
  const std::uint16_t port = transport->port();
  Repair& repair = repairs_.emplace_back(Repair{.transport = transport.get(),
                                                .listener = ChannelListener(agent_, {rail, true}),
                                                .rail = nullptr,
                                                .broken = {},
                                                .standing = {}});
  repair.rail = std::make_unique<RingRail>(&loop_, std::move(transport), repair.listener,
                                           RingRailOptions{.rate_bps = rate_bps});
  mains_.push_back({.rail = nullptr, .interface = at.interface});
  return port;
}

void RecoveryDriver::enable(std::vector<Rail*> rails, const Secret& secret,
                            const std::vector<std::vector<SocketAddress>>& members, Duration peer_timeout,
                            Time now) {
  recovery_.emplace(recovery::Options{.rank = agent_.rank(),
                                      .world_size = agent_.world_size(),
                                      .rails = rails.size(),
                                      .secret = secret,
                                      .peer_timeout = peer_timeout},
                    now);
  carrier_.emplace(loop_, [this](Time at) { links_changed(at); });
  for (std::size_t rail = 0; rail < rails.size(); ++rail) {
    mains_[rail].rail = rails[rail];
    trials_.emplace_back(agent_.rank(), agent_.world_size());
    sockets_[rail]->introduce(members[rail]);
    const EventLoop::Owned owned(loop_, repairs_[rail].rail.get());
    repairs_[rail].transport->introduce(derive_key(secret, "repair", rail), agent_.rank(), members[rail]);
    repairs_[rail].rail->halt(now);
    loop_.add_timed(*repairs_[rail].rail);
  }
  alive_ = recovery::all_of(rails.size());
  loop_.add_timed(*this);
  links_changed(now);
}

// ---------------------------------------------------------------- what the agent reports

void RecoveryDriver::received(std::size_t rail, int rank, Bytes datagram, Time now) {
  changed_ = true;
  count(rail, recovery_->receive(rail, rank, datagram, now));
}

void RecoveryDriver::count(std::size_t rail, std::optional<recovery::Refusal> refusal) {
  if (!refusal) return;
  Main& main = mains_[rail];
  ++(*refusal == recovery::Refusal::kReplayed ? main.replayed : main.refused);
}

void RecoveryDriver::unreachable(std::size_t rail, int rank, Bytes quoted, Time now) {
  count(rail, recovery_->unreachable(rail, rank, quoted, now));
  changed_ = true;
}

void RecoveryDriver::links_changed(Time now) {
  for (std::size_t rail = 0; rail < mains_.size(); ++rail) {
    Main& main = mains_[rail];
    std::string seen = carrier_obstacle(main.interface);
    bool replaced = false;
    try {
      replaced = seen.empty() && sockets_[rail]->follow_interface();
    } catch (const std::system_error& error) {  // no address yet: a later event will come
      seen = error.what();
    }
    if (replaced && main.state != MainState::kHalted)
      recovery_->suspect(rail, "interface " + main.interface + " has been replaced", now);
    if (seen == std::exchange(main.carrier, seen)) continue;
    tell_obstacle(rail, now);
  }
}

void RecoveryDriver::set_obstacle(std::size_t rail, const std::string& reason, Time now) {
  mains_.at(rail).obstacle = reason;
  tell_obstacle(rail, now);
}

void RecoveryDriver::tell_obstacle(std::size_t rail, Time now) {
  const Main& main = mains_[rail];
  recovery_->set_obstacle(rail, main.carrier.empty() ? main.obstacle : main.carrier, now);
  changed_ = true;
}

bool RecoveryDriver::trial_done(std::size_t rail, std::uint64_t id, Time now) {
  if (id != Trial::kId) return false;
  Main& main = mains_[rail];
  if (main.state != MainState::kTrial) return true;
  end_trial(main);
  main.state = MainState::kReady;
  recovery_->restarted(rail, main.incarnation, trials_[rail].passed(), now);
  changed_ = true;
  return true;
}

void RecoveryDriver::rail_failed(ChannelId channel, const Failure& failure, Time now) {
  if (channel.repair) {
    repairs_[channel.rail].broken = {.reason = failure.message,
                                     .suspect_at = failure.by_peer ? now + timing::kPrepareDelay : now};
    return;
  }
  const Main& main = mains_[channel.rail];
  if (main.state == MainState::kTrial) {
    recovery_->restarted(channel.rail, main.incarnation, false, now);
  } else if (main.state != MainState::kHalted) {
    recovery_->suspect(channel.rail, failure.message, now);
  }
  changed_ = true;
}

// A peer that closes a repair channel has probably prepared a decision. This rank will hear of it soon.
void RecoveryDriver::suspect_broken_repairs(Time now) {
  if (!repairs_open_) return;
  for (std::size_t rail = 0; rail < repairs_.size(); ++rail) {
    Broken& broken = repairs_[rail].broken;
    if (now < broken.suspect_at) continue;
    recovery_->suspect(rail, broken.reason, now);
    broken = {};
  }
}

// If all switches of a tree answer probes, a rank is late. Otherwise a part of the path is dead.
void RecoveryDriver::stalled(std::size_t rail, const Stall& stall, Time now) {
  if ((stall.first_switch_ok && stall.root_ok) || mains_[rail].state != MainState::kInUse) return;
  const std::string silent = stall.first_switch_ok ? "the root of its tree" : "its first switch";
  recovery_->suspect(rail, silent + " does not answer", now);
  changed_ = true;
}

void RecoveryDriver::suspect_laggards(Time now) {
  for (std::size_t rail = 0; rail < mains_.size(); ++rail) {
    auto& lag = mains_[rail].lag;
    const auto laggard = mains_[rail].state == MainState::kInUse ? agent_.laggard(rail) : std::nullopt;
    if (!laggard) lag.reset();
    if (!laggard) continue;
    if (!lag || lag->op_index != laggard->op_index) {
      const Time since = std::max(laggard->since, recovery_->stood_still_until());
      lag = {.op_index = laggard->op_index, .since = recovery_->ran() - std::max<Duration>(now - since, 0)};
    }
    const Duration waited = recovery_->ran() - lag->since;
    if (waited <= patience(*laggard) + recovery_->leeway(now)) continue;
    recovery_->suspect(rail,
                       "call #" + std::to_string(laggard->op_index) + " has waited " + milliseconds(waited) +
                           " for it alone, the others took " + milliseconds(laggard->others),
                       now);
  }
}

// All ranks have made the call and all processes run, but the channel makes too little progress. The rail
// becomes suspect, and the cause does not matter.
void RecoveryDriver::suspect_stuck(ChannelId channel, const Rail& rail, Standing& standing, Time now) {
  const auto front = agent_.front(channel);
  const std::uint64_t progress = rail.progress();
  const bool waits = front && front->op_index < all_submitted_;
  const Duration ran = recovery_->ran();
  if (!waits || front->id != standing.id) {
    standing = {.id = waits ? front->id : 0, .progress = progress, .since = ran, .begun = ran};
    return;
  }
  if (progress != std::exchange(standing.progress, progress)) standing.since = ran;
  const Duration stood = ran - standing.since;
  const Duration took = ran - standing.begun;
  const Duration leeway = recovery_->leeway(now);
  std::string what;
  if (stood > timing::kStuck + leeway + front->expected) {
    what = "stood still for " + milliseconds(stood);
  } else if (took - leeway > patience(*front)) {
    what = "taken " + milliseconds(took) + " instead of " + milliseconds(front->expected);
  } else {
    return;
  }
  recovery_->suspect(channel.rail,
                     "call #" + std::to_string(front->op_index) + ", which all ranks have made, has " + what +
                         " on " + (channel.repair ? "its repair channel" : "it"),
                     now);
  standing.since = standing.begun = ran;
}

void RecoveryDriver::leave(Time now) {
  if (ended_) return;
  recovery_->leave(now);
  changed_ = true;
}

void RecoveryDriver::end() {
  ended_ = true;
  for (const Repair& repair : repairs_) repair.rail->abort();
}

// ---------------------------------------------------------------- what is done

Time RecoveryDriver::deadline() const { return ended_ ? kNever : recovery_->deadline(); }

void RecoveryDriver::expire(Time now) {
  // A delayed loop finds unread datagrams in its sockets. Read them first: they are no silence.
  for (const auto& socket : sockets_) socket->drain(now);
  recovery_->submitted(agent_.submitted());
  recovery_->completed(completed_);
  recovery_->expire(now);
  suspect_laggards(now);
  suspect_broken_repairs(now);
  for (std::size_t rail = 0; rail < mains_.size(); ++rail) {
    Main& main = mains_[rail];
    if (main.state == MainState::kInUse) suspect_stuck({.rail = rail}, *main.rail, main.standing, now);
    Repair& repair = repairs_[rail];
    if (repairs_open_) suspect_stuck({.rail = rail, .repair = true}, *repair.rail, repair.standing, now);
  }
  changed_ = true;
}

void RecoveryDriver::pump(Time now) {
  if (!std::exchange(changed_, false)) return;
  for (bool idle = false; !idle && !ended_;) {
    idle = true;
    while (next_event(now)) idle = false;
    if (!ended_ && transmit(now)) idle = false;
  }
}

bool RecoveryDriver::transmit(Time now) {
  bool any = false;
  while (const auto outgoing = recovery_->transmit(now)) {
    const std::size_t size = sockets_[outgoing->rail]->send(outgoing->rank, outgoing->bytes);
    Main& main = mains_[outgoing->rail];
    (outgoing->heartbeat ? main.agreement.heartbeats : main.agreement.control) += size;
    main.agreement_packets += size > 0;
    any = true;
  }
  return any;
}

bool RecoveryDriver::next_event(Time now) {
  if (ended_) return false;
  const auto event = recovery_->poll();
  if (!event) return false;
  std::visit([&](const auto& what) { apply(what, now); }, *event);
  return true;
}

void RecoveryDriver::apply(const recovery::Prepare& prepare, Time now) {
  for (std::size_t rail = 0; rail < mains_.size(); ++rail) {
    if (!recovery::has(prepare.alive, rail)) halt_main(rail, now);
  }
  halt_repairs(now);
  recovery_->prepared(prepare, agent_.prepare(prepare.alive), now);
}

void RecoveryDriver::apply(const recovery::Commit& commit, Time now) {
  for (std::size_t rail = 0; rail < mains_.size(); ++rail) {
    if (recovery::has(commit.alive, rail)) mains_[rail].state = MainState::kInUse;
  }
  repairing_ = anything_to_repair(commit);
  alive_ = commit.alive;
  agent_.commit(commit);
  if (repairing_) open_repairs(commit, now);
  agent_.go_on();
}

void RecoveryDriver::open_repairs(const recovery::Commit& commit, Time now) {
  for (std::size_t rail = 0; rail < mains_.size(); ++rail) {
    if (!recovery::has(commit.alive, rail)) continue;
    try {
      repairs_[rail].rail->restart({.incarnation = commit.epoch, .bases = {}}, now);
    } catch (const std::exception& error) {
      recovery_->suspect(rail, error.what(), now);
    }
  }
  repairs_open_ = true;
}

void RecoveryDriver::apply(const recovery::Restart& restart, Time now) {
  Main& main = mains_[restart.rail];
  halt_main(restart.rail, now);
  main.incarnation = restart.incarnation;
  agent_.restarting(restart);
  main.trial_from = main.rail->stats();
  try {
    main.rail->restart({.incarnation = restart.incarnation, .bases = restart.bases}, now);
    main.state = MainState::kTrial;
    main.rail->start(trials_[restart.rail].slice(), now);
  } catch (const std::exception&) {  // any failure here means another attempt later
    halt_main(restart.rail, now);
    recovery_->restarted(restart.rail, restart.incarnation, false, now);
  }
}

void RecoveryDriver::apply(const recovery::Halt& abandon, Time now) { halt_main(abandon.rail, now); }

void RecoveryDriver::apply(const recovery::PeerLost& lost, Time now) {
  transmit(now);  // send the goodbyes that name the rank; nothing is sent later
  agent_.peer_lost(lost.rank, lost.reason);
}

void RecoveryDriver::apply(const recovery::AllCompleted& completed, Time) {
  agent_.all_completed(completed.op);
}

void RecoveryDriver::apply(const recovery::AllSubmitted& submitted, Time) { all_submitted_ = submitted.op; }

void RecoveryDriver::apply(const recovery::RailChanged& change, Time now) {
  agent_.rail_changed(change, recovery_->epoch(), now);
}

void RecoveryDriver::halt_main(std::size_t rail, Time now) {
  Main& main = mains_[rail];
  if (std::exchange(main.state, MainState::kHalted) != MainState::kHalted) main.rail->halt(now);
  end_trial(main);
  recovery_->halted(rail, main.rail->next_chunks(), now);
}

void RecoveryDriver::end_trial(Main& main) {
  if (!main.trial_from) return;
  RailStats now = main.rail->stats();
  now.sent -= main.trial_from->sent;
  main.trials += now.sent;
  main.trials.recovery += now.bytes_sent - main.trial_from->bytes_sent;
  main.trial_from.reset();
}

void RecoveryDriver::add_counts(std::size_t rail, RailStats& stats) {
  Main& main = mains_.at(rail);
  if (main.trial_from) {
    end_trial(main);
    main.trial_from = main.rail->stats();
  }
  SentBytes trials = main.trials;
  const std::uint64_t in_trials = std::exchange(trials.recovery, 0);
  stats.sent -= trials;
  const RailStats repair = repairs_[rail].rail->stats();
  stats.sent += main.agreement;
  stats.sent.recovery += in_trials + repair.bytes_sent;
  stats.bytes_sent += repair.bytes_sent + main.agreement.sum();
  stats.packets_sent += repair.packets_sent + main.agreement_packets;
  stats.bytes_received += repair.bytes_received;
  stats.packets_received += repair.packets_received;
  stats.malformed += main.refused + sockets_[rail]->strangers() + repair.malformed;
  stats.duplicates += main.replayed;
}

void RecoveryDriver::halt_repairs(Time now) {
  if (!std::exchange(repairs_open_, false)) return;
  for (Repair& repair : repairs_) {
    repair.rail->halt(now);
    repair.broken = {};
  }
}

// The answer is the same on all ranks: all of them open their repair channels, or none. It also counts on a
// rank without a piece to repair, which may be the last to submit a call with such a piece.
bool RecoveryDriver::anything_to_repair(const recovery::Commit& commit) const {
  for (std::size_t rail = 0; rail < mains_.size(); ++rail) {
    const recovery::Reach& main = commit.main[rail];
    if (!recovery::has(alive_, rail)) {
      if (recovery::has(commit.alive, rail) && main.done > 0) return true;  // it can take over pieces
      continue;
    }
    if (!recovery::has(commit.alive, rail) && main.least < commit.boundary) return true;
    if (repairing_ && commit.repair[rail].least != kAllRepaired) return true;
  }
  return false;
}

}  // namespace railweave
