// SPDX-License-Identifier: Apache-2.0
// Tells a rail that is dead from a sender that is late: the ring predecessor's ticks, rail by rail.
#pragma once

#include <cstdint>
#include <vector>

#include "core/longest_lately.hpp"
#include "core/time.hpp"
#include "recovery/types.hpp"

namespace railweave::recovery {

/// A silence on one rail means something only while newer ticks come on another: the sender lives, and so
/// does this receiver. A late, frozen or computing rank is silent on all rails alike, and a queue delays its
/// ticks but goes on giving them.
///
/// Where processes run late, so does a switch that is one, and it is silent on its own rail alone. Nothing
/// that this rank hears tells it from a dead one, but how late ranks are says how late it may be: patience
/// grows with that. A rail of which little is known yet gets the greatest patience of a quiet machine.
class Pulse {
 public:
  Pulse(const Options& options, Time now);

  void hear(std::size_t rail, std::uint32_t tick, Time now);
  /// This process has not run for so long before `now`: nothing could be heard.
  void slept(Duration duration, Time now);
  /// Looks for silence; whether the set of silent rails is another since the last time. All that has come
  /// must have been heard before.
  bool judge(Time now);

  /// Rails from which nothing comes although they should bring ticks.
  RailSet silent() const { return silent_; }
  Duration silence(std::size_t rail, Time now) const { return now - rails_[rail].heard; }
  /// What is to be added to every patience since processes run late, the own one or the predecessor's.
  Duration leeway(Time now) const;
  /// How long a rail may be silent.
  Duration patience(std::size_t rail, Time now) const;
  /// The last sign of life on any rail; kNever before the first.
  Time last_heard() const { return last_heard_; }
  /// When `judge` may find something that it did not find so far.
  Time deadline(Time now) const;

 private:
  struct Rail {
    std::uint32_t tick = 0;    // the newest that came on this rail
    std::uint32_t missed = 0;  // newer ones that have come on other rails since this one was heard
    Time heard = 0;
    Duration heard_for = 0;
    int back = 0;           // ticks since it was silent
    LongestLately longest;  // silence that was not a dead rail's
  };

  Duration most_silence(Time now) const;
  std::uint32_t enough(Duration patience) const;
  void begin(std::uint32_t tick, Time now);

  const Options options_;
  std::vector<Rail> rails_;
  LongestLately lateness_;  // of new ticks, on whatever rail
  std::uint32_t newest_ = 0;
  Time newest_at_ = 0;
  Time last_heard_ = kNever;
  RailSet silent_ = 0;
  RailSet judged_ = 0;
};

}  // namespace railweave::recovery
