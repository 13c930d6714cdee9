// SPDX-License-Identifier: Apache-2.0
#include "recovery/member.hpp"

#include <array>
#include <utility>

namespace railweave::recovery {
namespace {

using Next = std::optional<Round>;

constexpr Next kNo = std::nullopt;
constexpr auto kNone = Round::kNone;
constexpr auto kFreezing = Round::kFreezing;
constexpr auto kFrozen = Round::kFrozen;

// A commit needs the answer of every rank to that very attempt, so none comes before it.
constexpr std::array<std::array<Next, kRoundInputs>, kRoundStates> kTable = {{
    //              kPropose   kStatus  kCommit
    /* none */ {{kFreezing, kNo, kNo}},
    /* freezing */ {{kFreezing, kFrozen, kNo}},
    /* frozen */ {{kFreezing, kNo, kNone}},
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
    return;  // nothing runs that could break
  if (rails_[rail].broken.empty()) rails_[rail].broken = std::move(reason);
}

void Member::frozen(const Freeze& freeze, const Position& position) {
  if (freeze != freeze_ || !step(RoundInput::kStatus)) return;  // the answer to an earlier attempt
  status_ = Status{.attempt = freeze.attempt, .position = position};
  status_->position.main.resize(count_);
  status_->position.repair.resize(count_);
  for (std::size_t rail = 0; rail < count_; ++rail)
    if (!has(freeze.alive, rail) && rails_[rail].channel == ChannelState::kHalting) halted(rail, {});
}

void Member::halted(std::size_t rail, std::vector<std::uint64_t> marks) {
  if (rails_[rail].channel != ChannelState::kHalting) return;
  step(rails_[rail], ChannelInput::kHalted);
  rails_[rail].marks = std::move(marks);
}

void Member::restarted(std::size_t rail, std::uint32_t incarnation, bool passed) {
  if (rails_[rail].incarnation != incarnation) return;  // an earlier one, abandoned since
  step(rails_[rail], passed ? ChannelInput::kPassed : ChannelInput::kFailed);
}

// --- what rank 0 says ---

bool Member::obey(const Order& order) {
  const std::uint32_t ahead = order.committed.epoch - epoch_;
  if (ahead > 1 || (ahead == 1 && !commit(order))) return false;
  bool allowed = true;
  for (std::size_t rail = 0; rail < count_; ++rail) allowed &= obey(rail, order.channels[rail]);
  if (order.proposal) allowed &= propose(*order.proposal);
  tell_changes(order.channels);
  return allowed;
}

// What a decision is based on is reported before it: the agent keeps the reasons with the decision.
bool Member::commit(const Order& order) {
  const Commit& commit = order.committed;
  if (commit.alive != freeze_.alive || !step(RoundInput::kCommit)) return false;
  epoch_ = commit.epoch;
  alive_ = commit.alive;
  status_.reset();
  for (std::size_t rail = 0; rail < count_; ++rail)
    if (has(alive_, rail)) step(rails_[rail], ChannelInput::kAdmit);
  tell_changes(order.channels);
  events_.emplace_back(commit);
  return true;
}

bool Member::obey(std::size_t index, const ChannelOrder& order) {
  Rail& rail = rails_[index];
  if (order.incarnation == rail.incarnation) {
    if (order.active) return true;
    const ChannelState before = rail.channel;
    const bool allowed = step(rail, ChannelInput::kAbandon);
    if (rail.channel != before) events_.emplace_back(Abandon{.rail = index, .incarnation = rail.incarnation});
    return allowed;
  }
  // One that was abandoned before this rank heard of it stays halted, and takes its number.
  if (order.incarnation < rail.incarnation ||
      !step(rail, order.active ? ChannelInput::kRestart : ChannelInput::kAbandon))
    return false;
  rail.incarnation = order.incarnation;
  if (order.active)
    events_.emplace_back(Restart{.rail = index, .incarnation = order.incarnation, .bases = order.bases});
  return true;
}

bool Member::propose(const Proposal& proposal) {
  const bool later = round_ == Round::kNone || proposal.attempt > freeze_.attempt;
  if (!later) return proposal.attempt == freeze_.attempt && proposal.alive == freeze_.alive;
  if (!step(RoundInput::kPropose)) return false;
  freeze_ = Freeze{.epoch = epoch_ + 1, .attempt = proposal.attempt, .alive = proposal.alive};
  status_.reset();
  for (std::size_t rail = 0; rail < count_; ++rail)
    if (!has(proposal.alive, rail)) step(rails_[rail], ChannelInput::kExclude);
  events_.emplace_back(freeze_);
  return true;
}

// --- what this rank says ---

Report Member::report() const {
  Report report{.epoch = epoch_, .status = status_};
  for (const Rail& rail : rails_) {
    const std::string& reason = !rail.broken.empty()     ? rail.broken
                                : !rail.obstacle.empty() ? rail.obstacle
                                                         : rail.silence;
    report.channels.push_back({.state = rail.channel,
                               .incarnation = rail.incarnation,
                               .unfit = !reason.empty(),
                               .broken = !rail.broken.empty(),
                               .reason = reason,
                               .marks = rail.marks});
  }
  return report;
}

void Member::tell_changes(const std::vector<ChannelOrder>& orders) {
  for (std::size_t index = 0; index < count_; ++index) {
    Rail& rail = rails_[index];
    const bool recovering = rail.channel == ChannelState::kRestarting ||
                            rail.channel == ChannelState::kPassed || rail.channel == ChannelState::kFailed;
    const State state = has(alive_, index) ? State::kUp : recovering ? State::kRecovering : State::kDown;
    if (std::exchange(rail.told, state) == state) continue;
    events_.emplace_back(RailChanged{.rail = index, .state = state, .reason = orders[index].reason});
  }
}

std::optional<Event> Member::poll() {
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace railweave::recovery
