// SPDX-License-Identifier: Apache-2.0
// Rank 0's view of one rail: up, or a step on the way back. One table has all transitions.
#pragma once

#include <cstdint>
#include <optional>

#include "recovery/types.hpp"

namespace railweave::recovery {

enum class Phase : std::uint8_t { kUp, kDown, kTrying, kPassed };
inline constexpr std::size_t kPhases = 4;
enum class PhaseInput : std::uint8_t {
  kOut,        // a round leaves the rail out because it is unfit
  kTry,        // the rail has been fit for long enough
  kPass,       // the trial had the right result on all ranks
  kFail,       // the trial failed, or the rail has become unfit
  kInterrupt,  // a round for another rail begins during the trial
  kAdmit,      // a round has admitted the rail
};
inline constexpr std::size_t kPhaseInputs = 6;

/// Returns nothing if the input is not allowed in that phase.
std::optional<Phase> next_phase(Phase phase, PhaseInput input);

/// Each failure within `health` doubles the time of fitness that the rail needs before its next trial.
class Probation {
 public:
  Probation(const Options& options, Time now) : options_(options), up_since_(now) {}

  /// Throws std::logic_error if the table does not allow the input.
  void apply(PhaseInput input, Time now);
  /// Takes the ranks' present opinion of the rail.
  void judge(bool fit, Time now);

  Phase phase() const { return phase_; }
  /// The time at which a rail that is down may be tried, or a running trial fails; kNever: unknown.
  Time deadline() const;

 private:
  void failed(Time now);

  Options options_;
  Phase phase_ = Phase::kUp;
  Time up_since_;
  Time fit_since_ = kNever;
  Time trial_ends_ = kNever;
  int failures_ = 0;  // in a row
};

}  // namespace railweave::recovery
