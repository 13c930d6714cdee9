// SPDX-License-Identifier: Apache-2.0
#include "recovery/coordinator.hpp"

#include <algorithm>
#include <utility>

namespace railweave::recovery {

Coordinator::Coordinator(const Options& options, Time now)
    : count_(options.rails),
      reports_(static_cast<std::size_t>(options.world_size),
               Report{.epoch = 0, .channels = std::vector<ChannelReport>(options.rails)}),
      rails_(options.rails, Probation(options, now)) {
  order_.committed.alive = all_of(count_);
  order_.committed.main.resize(count_);
  order_.committed.repair.resize(count_);
  order_.channels.resize(count_);
}

bool Coordinator::take(int rank, const Report& report, Time now) {
  const std::uint32_t epoch = order_.committed.epoch;
  Report& known = reports_[static_cast<std::size_t>(rank)];
  if (report.epoch > epoch || report.epoch < known.epoch || report.channels.size() != count_) return false;
  for (std::size_t rail = 0; rail < count_; ++rail)
    if (report.channels[rail].incarnation > order_.channels[rail].incarnation) return false;
  known = report;
  step(now);
  return true;
}

// --- what the reports say ---

bool Coordinator::settled() const {
  if (order_.proposal) return false;
  return std::ranges::all_of(reports_,
                             [&](const Report& report) { return report.epoch == order_.committed.epoch; });
}

bool Coordinator::answered(int rank) const {
  const Report& report = reports_[static_cast<std::size_t>(rank)];
  return report.epoch == order_.committed.epoch && report.status &&
         report.status->attempt == order_.proposal->attempt;
}

RailSet Coordinator::unfit() const {
  RailSet rails = 0;
  for (const Report& report : reports_)
    for (std::size_t rail = 0; rail < count_; ++rail)
      if (report.channels[rail].unfit) rails |= bit(rail);
  return rails;
}

RailSet Coordinator::joined() const {
  RailSet rails = 0;
  for (std::size_t rail = 0; rail < count_; ++rail)
    if (rails_[rail].phase() == Phase::kUp || rails_[rail].phase() == Phase::kPassed) rails |= bit(rail);
  return rails;
}

/// Without any fit rail one is kept, whose transport may yet get through: rather one that is not broken.
RailSet Coordinator::survivors(RailSet candidates) const {
  if (const RailSet fit = candidates & ~unfit()) return fit;
  RailSet broken = 0;
  for (const Report& report : reports_)
    for (std::size_t rail = 0; rail < count_; ++rail)
      if (report.channels[rail].broken) broken |= bit(rail);
  const RailSet choice = (candidates & ~broken) ? candidates & ~broken : candidates;
  return choice & (~choice + 1);  // the lowest
}

std::string Coordinator::complaint(std::size_t rail) const {
  for (std::size_t rank = 0; rank < reports_.size(); ++rank) {
    const ChannelReport& channel = reports_[rank].channels[rail];
    if (channel.unfit) return "rank " + std::to_string(rank) + ": " + channel.reason;
  }
  return {};
}

bool Coordinator::all_channels(std::size_t rail, ChannelState state) const {
  return std::ranges::all_of(reports_, [&](const Report& report) {
    const ChannelReport& channel = report.channels[rail];
    return channel.state == state && channel.incarnation == order_.channels[rail].incarnation;
  });
}

int Coordinator::failed_on(std::size_t rail) const {
  for (std::size_t rank = 0; rank < reports_.size(); ++rank) {
    const ChannelReport& channel = reports_[rank].channels[rail];
    if (channel.state == ChannelState::kFailed && channel.incarnation == order_.channels[rail].incarnation)
      return static_cast<int>(rank);
  }
  return -1;
}

Reach Coordinator::reach(std::vector<std::uint32_t> Position::* channels, std::size_t rail) const {
  Reach reach{.done = 0, .rank = 0, .least = UINT32_MAX};
  for (std::size_t rank = 0; rank < reports_.size(); ++rank) {
    const std::uint32_t done = (reports_[rank].status->position.*channels)[rail];
    if (done > reach.done) reach = {.done = done, .rank = static_cast<int>(rank), .least = reach.least};
    reach.least = std::min(reach.least, done);
  }
  return reach;
}

// --- rounds ---

void Coordinator::step(Time now) {
  decide(now);
  deadline_ = kNever;
  if (!settled()) return;
  for (const Probation& rail : rails_)  // what was due before now waits for a report
    if (rail.deadline() > now) deadline_ = std::min(deadline_, rail.deadline());
}

void Coordinator::decide(Time now) {
  if (order_.proposal) go_on(now);
  if (!settled()) return;
  const RailSet unfit = this->unfit();
  for (std::size_t rail = 0; rail < count_; ++rail) recover(rail, !has(unfit, rail), now);
  const RailSet wanted = survivors(joined());
  if (wanted != order_.committed.alive) begin(wanted, now);
}

void Coordinator::begin(RailSet alive, Time now) {
  leave_out(all_of(count_) & ~alive, now);
  order_.proposal = Proposal{.attempt = 1, .alive = alive};
}

void Coordinator::go_on(Time now) {
  const RailSet alive = survivors(order_.proposal->alive);
  if (alive != order_.proposal->alive) return narrow(alive, now);
  for (std::size_t rank = 0; rank < reports_.size(); ++rank)
    if (!answered(static_cast<int>(rank))) return;
  commit(now);
}

void Coordinator::narrow(RailSet alive, Time now) {
  leave_out(order_.proposal->alive & ~alive, now);
  order_.proposal = Proposal{.attempt = order_.proposal->attempt + 1, .alive = alive};
}

/// Ranks halt these rails with the proposal, whatever they do: so they are down from here on.
void Coordinator::leave_out(RailSet rails, Time now) {
  for (std::size_t rail = 0; rail < count_; ++rail) {
    if (!has(rails, rail)) continue;
    const std::string reason = complaint(rail);
    const Phase phase = rails_[rail].phase();
    if (phase == Phase::kUp) {
      rails_[rail].apply(PhaseInput::kOut, now);
      order_.channels[rail].reason = reason;
    } else if (phase != Phase::kDown) {
      end_trial(rail, reason.empty() ? PhaseInput::kInterrupt : PhaseInput::kFail, reason, now);
    }
  }
}

void Coordinator::commit(Time now) {
  Commit& decision = order_.committed;
  ++decision.epoch;
  decision.alive = order_.proposal->alive;
  decision.boundary = 0;
  for (const Report& report : reports_)
    decision.boundary = std::max(decision.boundary, report.status->position.submitted);
  for (std::size_t rail = 0; rail < count_; ++rail) {
    decision.main[rail] = reach(&Position::main, rail);
    decision.repair[rail] = reach(&Position::repair, rail);
    if (!has(decision.alive, rail)) continue;
    rails_[rail].apply(PhaseInput::kAdmit, now);
    order_.channels[rail].active = false;
    order_.channels[rail].reason.clear();
    order_.channels[rail].bases.clear();
  }
  order_.proposal.reset();
}

// --- rails on their way back ---

void Coordinator::recover(std::size_t rail, bool fit, Time now) {
  Probation& probation = rails_[rail];
  probation.judge(fit, now);
  if (probation.phase() == Phase::kUp) return;
  if (probation.phase() == Phase::kDown) {
    if (now >= probation.deadline() && all_channels(rail, ChannelState::kHalted)) start_trial(rail, now);
    return;
  }
  const int failed = failed_on(rail);
  if (!fit) {
    end_trial(rail, PhaseInput::kFail, complaint(rail), now);
  } else if (failed >= 0) {
    end_trial(rail, PhaseInput::kFail, "rank " + std::to_string(failed) + ": the trial failed", now);
  } else if (probation.phase() == Phase::kTrying && all_channels(rail, ChannelState::kPassed)) {
    probation.apply(PhaseInput::kPass, now);
  } else if (now >= probation.deadline()) {
    end_trial(rail, PhaseInput::kFail, "the trial took too long", now);
  }
}

void Coordinator::start_trial(std::size_t rail, Time now) {
  rails_[rail].apply(PhaseInput::kTry, now);
  ChannelOrder& order = order_.channels[rail];
  ++order.incarnation;
  order.active = true;
  order.bases.clear();
  for (const Report& report : reports_) {
    const auto& marks = report.channels[rail].marks;
    if (marks.size() > order.bases.size()) order.bases.resize(marks.size());
    for (std::size_t i = 0; i < marks.size(); ++i) order.bases[i] = std::max(order.bases[i], marks[i]);
  }
}

void Coordinator::end_trial(std::size_t rail, PhaseInput input, std::string reason, Time now) {
  rails_[rail].apply(input, now);
  order_.channels[rail].active = false;
  if (!reason.empty()) order_.channels[rail].reason = std::move(reason);
}

}  // namespace railweave::recovery
