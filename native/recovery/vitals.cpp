// SPDX-License-Identifier: Apache-2.0
#include "recovery/vitals.hpp"

#include <algorithm>
#include <utility>

namespace railweave::recovery {
namespace {

constexpr std::uint8_t kRefusals = 2;  // on each rail: Linux sends six at once, then one per second
constexpr int kFirstSign = 4;          // times the timeout, because ranks do not start at the same time

bool refused_on(const std::array<std::uint8_t, kMaxRails>& refusals, RailSet rails) {
  for (std::size_t rail = 0; rail < refusals.size(); ++rail)
    if (has(rails, rail) && refusals[rail] < kRefusals) return false;
  return true;
}

std::string seconds(Duration duration) {
  const Duration tenths = duration / (100 * kMillisecond);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

Vitals::Vitals(const Options& options, Time now)
    : options_(options),
      predecessor_((options.rank + options.world_size - 1) % options.world_size),
      started_(now),
      ranks_(static_cast<std::size_t>(options.world_size)) {}

void Vitals::refused(std::size_t rail, int rank, Time now) {
  Rank& refusing = ranks_[static_cast<std::size_t>(rank)];
  if (refusing.since != kNever && aged(refusing, now)) refusing = {};
  refusing.since = std::min(refusing.since, now);
  refusing.last = now;
  refusing.refusals[rail] = static_cast<std::uint8_t>(std::min(refusing.refusals[rail] + 1, 255));
}

std::vector<int> Vitals::asked(Time now) {
  std::vector<int> ranks;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    Rank& each = ranks_[static_cast<std::size_t>(rank)];
    const bool refusing = each.since != kNever && !aged(each, now);
    if (std::exchange(each.doubted, false) || refusing) ranks.push_back(rank);
  }
  return ranks;
}

Time Vitals::deadline(Time last_heard) const {
  return last_heard == kNever ? started_ + kFirstSign * options_.peer_timeout
                              : last_heard + options_.peer_timeout;
}

std::optional<PeerLost> Vitals::judge(RailSet alive, Time last_heard, Duration patience, Time now) const {
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const Rank& refusing = ranks_[static_cast<std::size_t>(rank)];
    if (refusing.since == kNever || aged(refusing, now) || now - refusing.since < patience) continue;
    if (refused_on(refusing.refusals, alive))
      return PeerLost{.rank = rank,
                      .reason = "nobody listens at its addresses any more: its process has ended"};
  }
  if (now < deadline(last_heard)) return std::nullopt;
  const Time since = last_heard == kNever ? started_ : last_heard;
  return PeerLost{.rank = predecessor_, .reason = "silent on all rails for " + seconds(now - since)};
}

}  // namespace railweave::recovery
