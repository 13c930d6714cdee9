// SPDX-License-Identifier: Apache-2.0
#include "recovery/probation.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace railweave::recovery {
namespace {

using Next = std::optional<Phase>;

constexpr Next kNo = std::nullopt;
constexpr auto kUp = Phase::kUp;
constexpr auto kDown = Phase::kDown;
constexpr auto kTrying = Phase::kTrying;
constexpr auto kPassed = Phase::kPassed;

constexpr std::array<std::array<Next, kPhaseInputs>, kPhases> kTable = {{
    //            kOut   kTry     kPass    kFail  kInterrupt  kAdmit
    /* up */ {{kDown, kNo, kNo, kNo, kNo, kUp}},
    /* down */ {{kNo, kTrying, kNo, kNo, kNo, kNo}},
    /* trying */ {{kNo, kNo, kPassed, kDown, kDown, kNo}},
    /* passed */ {{kNo, kNo, kNo, kDown, kDown, kUp}},
}};

constexpr int kMostDoublings = 16;

}  // namespace

Next next_phase(Phase phase, PhaseInput input) {
  return kTable[static_cast<std::size_t>(phase)][static_cast<std::size_t>(input)];
}

void Probation::apply(PhaseInput input, Time now) {
  const auto next = next_phase(phase_, input);
  if (!next) throw std::logic_error("recovery: a rail cannot do this in its phase");
  if (input == PhaseInput::kOut || input == PhaseInput::kFail) failed(now);
  if (input == PhaseInput::kAdmit && phase_ != Phase::kUp) up_since_ = now;
  if (input == PhaseInput::kTry) trial_ends_ = now + options_.trial;
  // An interrupted trial shows nothing about the rail, so its time of fitness continues.
  if (*next == Phase::kDown && input != PhaseInput::kInterrupt) fit_since_ = kNever;
  phase_ = *next;
}

void Probation::failed(Time now) {
  if (phase_ == Phase::kUp && now - up_since_ >= options_.health) failures_ = 0;
  failures_ = std::min(failures_ + 1, kMostDoublings);
}

void Probation::judge(bool fit, Time now) {
  if (!fit) {
    fit_since_ = kNever;
  } else if (fit_since_ == kNever) {
    fit_since_ = now;
  }
}

Time Probation::deadline() const {
  if (phase_ == Phase::kTrying) return trial_ends_;
  if (phase_ != Phase::kDown || fit_since_ == kNever) return kNever;
  return fit_since_ + std::min(options_.hold << (failures_ - 1), options_.most_hold);
}

}  // namespace railweave::recovery
