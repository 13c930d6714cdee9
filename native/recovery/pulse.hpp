// SPDX-License-Identifier: Apache-2.0
// Distinguishes a dead rail from a late sender, by the ring predecessor's ticks on each rail.
#pragma once

#include <cstdint>
#include <vector>

#include "core/longest_lately.hpp"
#include "core/time.hpp"
#include "recovery/types.hpp"

namespace railweave::recovery {

/// Silence on one rail counts only while newer ticks come on another rail. These ticks prove that sender and
/// receiver run. A late, frozen or computing rank is silent on all rails. A queue delays ticks but still
/// delivers them.
///
/// A switch that is a process may run late too. It is then silent on its own rail only, like a dead one.
/// Patience therefore grows with the lateness of ranks. A new rail gets the greatest patience of a machine
/// without delays.
class Pulse {
 public:
  Pulse(const Options& options, Time now);

  void hear(std::size_t rail, std::uint32_t tick, Time now);
  /// This process did not run for `duration` before `now`, so it could not hear anything.
  void slept(Duration duration, Time now);
  /// Looks for silent rails and returns whether the set has changed. All received ticks must be handed in
  /// before.
  bool judge(Time now);

  /// Rails without ticks while other rails bring newer ones.
  RailSet silent() const { return silent_; }
  Duration silence(std::size_t rail, Time now) const { return now - rails_[rail].heard; }
  /// The addition to every patience for late processes, this one's or the predecessor's.
  Duration leeway(Time now) const;
  /// How long this rail may be silent.
  Duration patience(std::size_t rail, Time now) const;
  /// The last tick on any rail; kNever before the first.
  Time last_heard() const { return last_heard_; }
  /// The next time at which `judge` may find a new silence.
  Time deadline(Time now) const;

 private:
  struct Rail {
    std::uint32_t tick = 0;    // the newest on this rail
    std::uint32_t missed = 0;  // number of newer ticks on other rails since this rail was heard
    Time heard = 0;
    Duration heard_for = 0;
    int back = 0;           // ticks since the last silence
    LongestLately longest;  // longest silence without an outage
  };

  Duration most_silence(Time now) const;
  std::uint32_t enough(Duration patience) const;
  void begin(std::uint32_t tick, Time now);

  const Options options_;
  std::vector<Rail> rails_;
  LongestLately lateness_;  // of new ticks on any rail
  std::uint32_t newest_ = 0;
  Time newest_at_ = 0;
  Time last_heard_ = kNever;
  RailSet silent_ = 0;
  RailSet judged_ = 0;
};

}  // namespace railweave::recovery
