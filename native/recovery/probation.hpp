// SPDX-License-Identifier: Apache-2.0
// Rank 0's view of one rail: up, or how far it is on the way back. All that may happen is one table.
#pragma once

#include <cstdint>
#include <optional>

#include "recovery/types.hpp"

namespace railweave::recovery {

enum class Phase : std::uint8_t { kUp, kDown, kTrying, kPassed };
inline constexpr std::size_t kPhases = 4;
enum class PhaseInput : std::uint8_t {
  kOut,        // a round goes on without it, because it is unfit
  kTry,        // it has been fit for long enough
  kPass,       // the trial was right on all ranks
  kFail,       // it was not, or the rail has become unfit
  kInterrupt,  // a round for another rail begins during the trial
  kAdmit,      // a round has decided that it is alive
};
inline constexpr std::size_t kPhaseInputs = 6;

/// Nothing: the input is not allowed in that phase.
std::optional<Phase> next_phase(Phase phase, PhaseInput input);

/// Each failure within `health` doubles the time for which the rail must be fit before it is tried again.
class Probation {
 public:
  Probation(const Options& options, Time now) : options_(options), up_since_(now) {}

  /// Throws std::logic_error for what the table does not allow.
  void apply(PhaseInput input, Time now);
  /// What all ranks say of it now.
  void judge(bool fit, Time now);

  Phase phase() const { return phase_; }
  /// When a rail that is down may be tried, or when one that is tried has failed; kNever: not by itself.
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
