// SPDX-License-Identifier: Apache-2.0
#include "recovery/coordinator.hpp"

#include <algorithm>
#include <utility>

namespace railweave::recovery {

Coordinator::Coordinator(const Options& options, Time now)
    : count_(options.rails),
      statuses_(static_cast<std::size_t>(options.world_size),
                Status{.epoch = 0, .channels = std::vector<ChannelStatus>(options.rails)}),
      rails_(options.rails, Probation(options, now)) {
  decision_.committed.alive = all_of(count_);
  decision_.committed.main.resize(count_);
  decision_.committed.repair.resize(count_);
  decision_.channels.resize(count_);
}

bool Coordinator::take(int rank, const Status& status, Time now) {
  const std::uint32_t epoch = decision_.committed.epoch;
  Status& known = statuses_[static_cast<std::size_t>(rank)];
  if (status.epoch > epoch || status.epoch < known.epoch || status.channels.size() != count_) return false;
  for (std::size_t rail = 0; rail < count_; ++rail)
    if (status.channels[rail].incarnation > decision_.channels[rail].incarnation) return false;
  known = status;
  step(now);
  return true;
}

// --- what the ranks say ---

bool Coordinator::settled() const {
  if (decision_.prepare) return false;
  return std::ranges::all_of(statuses_,
                             [&](const Status& status) { return status.epoch == decision_.committed.epoch; });
}

bool Coordinator::answered(int rank) const {
  const Status& status = statuses_[static_cast<std::size_t>(rank)];
  return status.epoch == decision_.committed.epoch && status.prepared &&
         status.prepared->attempt == decision_.prepare->attempt;
}

RailSet Coordinator::unfit() const {
  RailSet rails = 0;
  for (const Status& status : statuses_)
    for (std::size_t rail = 0; rail < count_; ++rail)
      if (status.channels[rail].unfit) rails |= bit(rail);
  return rails;
}

RailSet Coordinator::joined() const {
  RailSet rails = 0;
  for (std::size_t rail = 0; rail < count_; ++rail)
    if (rails_[rail].phase() == Phase::kUp || rails_[rail].phase() == Phase::kPassed) rails |= bit(rail);
  return rails;
}

/// If no rail is fit, one rail is kept whose transport may still work. Rails that are not broken come first.
RailSet Coordinator::survivors(RailSet candidates) const {
  if (const RailSet fit = candidates & ~unfit()) return fit;
  RailSet broken = 0;
  for (const Status& status : statuses_)
    for (std::size_t rail = 0; rail < count_; ++rail)
      if (status.channels[rail].broken) broken |= bit(rail);
  const RailSet choice = (candidates & ~broken) ? candidates & ~broken : candidates;
  return choice & (~choice + 1);  // the lowest rail
}

std::string Coordinator::objection(std::size_t rail) const {
  for (std::size_t rank = 0; rank < statuses_.size(); ++rank) {
    const ChannelStatus& channel = statuses_[rank].channels[rail];
    if (channel.unfit) return "rank " + std::to_string(rank) + ": " + channel.reason;
  }
  return {};
}

bool Coordinator::all_channels(std::size_t rail, ChannelState state) const {
  return std::ranges::all_of(statuses_, [&](const Status& status) {
    const ChannelStatus& channel = status.channels[rail];
    return channel.state == state && channel.incarnation == decision_.channels[rail].incarnation;
  });
}

int Coordinator::failed_on(std::size_t rail) const {
  for (std::size_t rank = 0; rank < statuses_.size(); ++rank) {
    const ChannelStatus& channel = statuses_[rank].channels[rail];
    if (channel.state == ChannelState::kFailed && channel.incarnation == decision_.channels[rail].incarnation)
      return static_cast<int>(rank);
  }
  return -1;
}

Reach Coordinator::reach(std::vector<std::uint32_t> Position::* channels, std::size_t rail) const {
  Reach reach{.done = 0, .rank = 0, .least = UINT32_MAX};
  for (std::size_t rank = 0; rank < statuses_.size(); ++rank) {
    const std::uint32_t done = (statuses_[rank].prepared->position.*channels)[rail];
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
  for (const Probation& rail : rails_)  // overdue trials and holds wait for a rank's status
    if (rail.deadline() > now) deadline_ = std::min(deadline_, rail.deadline());
}

void Coordinator::decide(Time now) {
  if (decision_.prepare) go_on(now);
  if (!settled()) return;
  const RailSet unfit = this->unfit();
  for (std::size_t rail = 0; rail < count_; ++rail) recover(rail, !has(unfit, rail), now);
  const RailSet wanted = survivors(joined());
  if (wanted != decision_.committed.alive) begin(wanted, now);
}

void Coordinator::begin(RailSet alive, Time now) {
  leave_out(all_of(count_) & ~alive, now);
  decision_.prepare = PrepareRequest{.attempt = 1, .alive = alive};
}

void Coordinator::go_on(Time now) {
  const RailSet alive = survivors(decision_.prepare->alive);
  if (alive != decision_.prepare->alive) return narrow(alive, now);
  for (std::size_t rank = 0; rank < statuses_.size(); ++rank)
    if (!answered(static_cast<int>(rank))) return;
  commit(now);
}

void Coordinator::narrow(RailSet alive, Time now) {
  leave_out(decision_.prepare->alive & ~alive, now);
  decision_.prepare = PrepareRequest{.attempt = decision_.prepare->attempt + 1, .alive = alive};
}

/// Ranks halt these rails in any state when they prepare, so the rails are down from now on.
void Coordinator::leave_out(RailSet rails, Time now) {
  for (std::size_t rail = 0; rail < count_; ++rail) {
    if (!has(rails, rail)) continue;
    const std::string reason = objection(rail);
    const Phase phase = rails_[rail].phase();
    if (phase == Phase::kUp) {
      rails_[rail].apply(PhaseInput::kOut, now);
      decision_.channels[rail].reason = reason;
    } else if (phase != Phase::kDown) {
      end_trial(rail, reason.empty() ? PhaseInput::kInterrupt : PhaseInput::kFail, reason, now);
    }
  }
}

void Coordinator::commit(Time now) {
  Commit& decision = decision_.committed;
  ++decision.epoch;
  decision.alive = decision_.prepare->alive;
  decision.boundary = 0;
  for (const Status& status : statuses_)
    decision.boundary = std::max(decision.boundary, status.prepared->position.submitted);
  for (std::size_t rail = 0; rail < count_; ++rail) {
    decision.main[rail] = reach(&Position::main, rail);
    decision.repair[rail] = reach(&Position::repair, rail);
    if (!has(decision.alive, rail)) continue;
    rails_[rail].apply(PhaseInput::kAdmit, now);
    decision_.channels[rail].active = false;
    decision_.channels[rail].reason.clear();
    decision_.channels[rail].bases.clear();
  }
  decision_.prepare.reset();
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
    end_trial(rail, PhaseInput::kFail, objection(rail), now);
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
  ChannelDecision& decision = decision_.channels[rail];
  ++decision.incarnation;
  decision.active = true;
  decision.bases.clear();
  for (const Status& status : statuses_) {
    const auto& next_chunks = status.channels[rail].next_chunks;
    if (next_chunks.size() > decision.bases.size()) decision.bases.resize(next_chunks.size());
    for (std::size_t i = 0; i < next_chunks.size(); ++i)
      decision.bases[i] = std::max(decision.bases[i], next_chunks[i]);
  }
}

void Coordinator::end_trial(std::size_t rail, PhaseInput input, std::string reason, Time now) {
  rails_[rail].apply(input, now);
  decision_.channels[rail].active = false;
  if (!reason.empty()) decision_.channels[rail].reason = std::move(reason);
}

}  // namespace railweave::recovery
