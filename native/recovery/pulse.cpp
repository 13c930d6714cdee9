// SPDX-License-Identifier: Apache-2.0
#include "recovery/pulse.hpp"

#include <algorithm>
#include <utility>

namespace railweave::recovery {
namespace {

constexpr int kTicksBack = 3;  // ticks in good order after a silence until a rail counts as heard again

}  // namespace

Pulse::Pulse(const Options& options, Time now) : options_(options), lateness_(options.memory) {
  for (std::size_t rail = 0; rail < options.rails; ++rail)
    rails_.push_back({.heard = now, .longest = LongestLately(options.memory)});
}

void Pulse::begin(std::uint32_t tick, Time now) {
  newest_ = tick - 1;
  newest_at_ = now;
  for (Rail& rail : rails_) {
    rail.tick = tick - 1;
    rail.heard = now;
  }
}

void Pulse::hear(std::size_t index, std::uint32_t tick, Time now) {
  if (last_heard_ == kNever) begin(tick, now);
  Rail& rail = rails_[index];
  if (static_cast<std::int32_t>(tick - rail.tick) <= 0) return;  // a duplicate, or overtaken by a newer tick
  const Duration patience = this->patience(index, now);
  const Duration silence = now - rail.heard;
  // Newer ticks on other rails show how much of the silence belongs to this rail. A silence beyond the
  // greatest patience was an outage and must not raise the patience.
  const Duration own = std::min<Duration>(silence, rail.missed * options_.heartbeat);
  rail.heard_for += std::min(silence, options_.heartbeat);
  if (own < most_silence(now)) rail.longest.add(own, now);
  rail.back = silence < patience ? rail.back + 1 : 1;
  if (rail.back >= kTicksBack) silent_ &= ~bit(index);
  rail.tick = tick;
  rail.heard = last_heard_ = now;
  // Skipped ticks are no evidence: a full socket may have dropped them.
  if (static_cast<std::int32_t>(tick - newest_) > 0) {
    newest_ = tick;
    lateness_.add(now - std::exchange(newest_at_, now) - options_.heartbeat, now);
    for (Rail& other : rails_) ++other.missed;
  }
  rail.missed = 0;
}

void Pulse::slept(Duration duration, Time now) {
  for (Rail& rail : rails_) rail.heard = std::min(now, rail.heard + duration);
  if (last_heard_ != kNever) last_heard_ = std::min(now, last_heard_ + duration);
}

Duration Pulse::leeway(Time now) const {
  return std::min(timing::kLeewayFactor * lateness_.get(now), options_.most_leeway);
}

Duration Pulse::most_silence(Time now) const {
  return std::max(options_.most_silence, options_.least_silence + leeway(now));
}

Duration Pulse::patience(std::size_t rail, Time now) const {
  if (rails_[rail].heard_for < options_.settling) return most_silence(now);
  return std::clamp(rails_[rail].longest.get(now) * timing::kGapFactor / timing::kGapDivisor,
                    options_.least_silence + leeway(now), most_silence(now));
}

std::uint32_t Pulse::enough(Duration patience) const {
  return static_cast<std::uint32_t>((patience + options_.heartbeat - 1) / options_.heartbeat);
}

bool Pulse::judge(Time now) {
  for (std::size_t index = 0; index < rails_.size(); ++index) {
    Rail& rail = rails_[index];
    const Duration patience = this->patience(index, now);
    if (now - rail.heard < patience || rail.missed < enough(patience)) continue;
    silent_ |= bit(index);
    rail.back = 0;
  }
  return std::exchange(judged_, silent_) != silent_;
}

Time Pulse::deadline(Time now) const {
  Time at = kNever;
  for (std::size_t index = 0; index < rails_.size(); ++index) {
    const Rail& rail = rails_[index];
    const Duration patience = this->patience(index, now);
    if (has(silent_, index) || rail.missed < enough(patience)) continue;
    at = std::min(at, rail.heard + patience);
  }
  return at;
}

}  // namespace railweave::recovery
