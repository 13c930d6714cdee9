// SPDX-License-Identifier: Apache-2.0
#include "recovery/member.hpp"

#include <array>
#include <utility>

namespace railweave::recovery {
namespace {

using Next = std::optional<Round>;

constexpr Next kNo = std::nullopt;
constexpr auto kNone = Round::kNone;
constexpr auto kPreparing = Round::kPreparing;
constexpr auto kPrepared = Round::kPrepared;

// A commit needs every rank's answer to the same attempt, so it cannot come before this rank's answer.
constexpr std::array<std::array<Next, kRoundInputs>, kRoundStates> kTable = {{
    //              kPrepare   kPrepared  kCommit
    /* none */ {{kPreparing, kNo, kNo}},
    /* preparing */ {{kPreparing, kPrepared, kNo}},
    /* prepared */ {{kPreparing, kNo, kNone}},
}};

}  // namespace

Next next_round_state(Round state, RoundInput input) {
  return kTable[static_cast<std::size_t>(state)][static_cast<std::size_t>(input)];
}

Member::Member(const Options& options)
    : count_(options.rails), rails_(options.rails), alive_(all_of(options.rails)) {}

bool Member::step(Rail& rail, ChannelInput input) {
  const auto next = next_channel_state(rail.channel, input);
  if (next) rail.channel = *next;
  if (rail.channel == ChannelState::kHalted) rail.broken.clear();
  return next.has_value();
}

bool Member::step(RoundInput input) {
  const auto next = next_round_state(round_, input);
  if (next) round_ = *next;
  return next.has_value();
}

// --- what the agent says ---

void Member::suspect(std::size_t rail, std::string reason) {
  const ChannelState channel = rails_[rail].channel;
  if (channel == ChannelState::kHalting || channel == ChannelState::kHalted)
    return;  // a halted channel cannot break
  if (rails_[rail].broken.empty()) rails_[rail].broken = std::move(reason);
}

void Member::prepared(const Prepare& prepare, const Position& position) {
  if (prepare != prepare_ || !step(RoundInput::kPrepared)) return;  // the answer to an earlier attempt
  prepared_ = Prepared{.attempt = prepare.attempt, .position = position};
  prepared_->position.main.resize(count_);
  prepared_->position.repair.resize(count_);
  for (std::size_t rail = 0; rail < count_; ++rail)
    if (!has(prepare.alive, rail) && rails_[rail].channel == ChannelState::kHalting) halted(rail, {});
}

void Member::halted(std::size_t rail, std::vector<std::uint64_t> next_chunks) {
  if (rails_[rail].channel != ChannelState::kHalting) return;
  step(rails_[rail], ChannelInput::kHalted);
  rails_[rail].next_chunks = std::move(next_chunks);
}

void Member::restarted(std::size_t rail, std::uint32_t incarnation, bool passed) {
  if (rails_[rail].incarnation != incarnation) return;  // that incarnation has been halted since
  step(rails_[rail], passed ? ChannelInput::kPassed : ChannelInput::kFailed);
}

// --- what rank 0 says ---

bool Member::follow(const Decision& decision) {
  const std::uint32_t ahead = decision.committed.epoch - epoch_;
  if (ahead > 1 || (ahead == 1 && !commit(decision))) return false;
  bool allowed = true;
  for (std::size_t rail = 0; rail < count_; ++rail) allowed &= follow(rail, decision.channels[rail]);
  if (decision.prepare) allowed &= prepare(*decision.prepare);
  report_changes(decision.channels);
  return allowed;
}

// Changes are reported before the commit, because the agent stores their reasons with the commit.
bool Member::commit(const Decision& decision) {
  const Commit& commit = decision.committed;
  if (commit.alive != prepare_.alive || !step(RoundInput::kCommit)) return false;
  epoch_ = commit.epoch;
  alive_ = commit.alive;
  prepared_.reset();
  for (std::size_t rail = 0; rail < count_; ++rail)
    if (has(alive_, rail)) step(rails_[rail], ChannelInput::kAdmit);
  report_changes(decision.channels);
  events_.emplace_back(commit);
  return true;
}

bool Member::follow(std::size_t index, const ChannelDecision& decision) {
  Rail& rail = rails_[index];
  if (decision.incarnation == rail.incarnation) {
    if (decision.active) return true;
    const ChannelState before = rail.channel;
    const bool allowed = step(rail, ChannelInput::kHalt);
    if (rail.channel != before) events_.emplace_back(Halt{.rail = index, .incarnation = rail.incarnation});
    return allowed;
  }
  // An incarnation that ended before this rank heard about it: the channel stays halted, with that number.
  if (decision.incarnation < rail.incarnation ||
      !step(rail, decision.active ? ChannelInput::kRestart : ChannelInput::kHalt))
    return false;
  rail.incarnation = decision.incarnation;
  if (decision.active)
    events_.emplace_back(
        Restart{.rail = index, .incarnation = decision.incarnation, .bases = decision.bases});
  return true;
}

bool Member::prepare(const PrepareRequest& prepare) {
  const bool later = round_ == Round::kNone || prepare.attempt > prepare_.attempt;
  if (!later) return prepare.attempt == prepare_.attempt && prepare.alive == prepare_.alive;
  if (!step(RoundInput::kPrepare)) return false;
  prepare_ = Prepare{.epoch = epoch_ + 1, .attempt = prepare.attempt, .alive = prepare.alive};
  prepared_.reset();
  for (std::size_t rail = 0; rail < count_; ++rail)
    if (!has(prepare.alive, rail)) step(rails_[rail], ChannelInput::kExclude);
  events_.emplace_back(prepare_);
  return true;
}

// --- what this rank says ---

Status Member::status() const {
  Status status{.epoch = epoch_, .prepared = prepared_};
  for (const Rail& rail : rails_) {
    const std::string& reason = !rail.broken.empty()     ? rail.broken
                                : !rail.obstacle.empty() ? rail.obstacle
                                                         : rail.silence;
    status.channels.push_back({.state = rail.channel,
                               .incarnation = rail.incarnation,
                               .unfit = !reason.empty(),
                               .broken = !rail.broken.empty(),
                               .reason = reason,
                               .next_chunks = rail.next_chunks});
  }
  return status;
}

void Member::report_changes(const std::vector<ChannelDecision>& decisions) {
  for (std::size_t index = 0; index < count_; ++index) {
    Rail& rail = rails_[index];
    const bool recovering = rail.channel == ChannelState::kRestarting ||
                            rail.channel == ChannelState::kPassed || rail.channel == ChannelState::kFailed;
    const State state = has(alive_, index) ? State::kUp : recovering ? State::kRecovering : State::kDown;
    if (std::exchange(rail.reported, state) == state) continue;
    events_.emplace_back(RailChanged{.rail = index, .state = state, .reason = decisions[index].reason});
  }
}

std::optional<Event> Member::poll() {
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace railweave::recovery
