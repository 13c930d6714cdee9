// SPDX-License-Identifier: Apache-2.0
#include "ports/impairment.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace railweave::ports {

namespace {

constexpr std::uint64_t kMostOvertake = 3;

/// The finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

}  // namespace

std::uint64_t ImpairedLink::draw(Decision decision) const {
  return mix(mix(impairment_.seed ^ mix(number_)) + decision);
}

bool ImpairedLink::happens(Decision decision, double probability) const {
  return std::ldexp(static_cast<double>(draw(decision) >> 11), -53) < probability;
}

void ImpairedLink::push(Bytes packet, Time now) {
  ++number_;
  ++counts_.packets;
  if (happens(kLoss, impairment_.loss)) {
    ++counts_.lost;
    return release_held(now);
  }
  const bool twice = happens(kDuplicate, impairment_.duplicate);
  std::vector<std::byte> copy(packet.begin(), packet.end());
  if (!copy.empty() && happens(kCorrupt, impairment_.corrupt)) {
    ++counts_.corrupted;
    const std::uint64_t bit = draw(kBit) % (8 * copy.size());
    copy[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  if (twice) {
    ++counts_.duplicated;
    enqueue(copy, now);
  }
  if (!happens(kReorder, impairment_.reorder)) {
    enqueue(std::move(copy), now);
  } else if (has_room(copy.size())) {
    ++counts_.reordered;
    bytes_ += copy.size();
    held_.push_back({std::move(copy), number_ + 1 + draw(kGap) % kMostOvertake, now + kLongestHold});
  }
  release_held(now);
}

bool ImpairedLink::has_room(std::size_t bytes) {
  if (bytes_ + bytes <= impairment_.queue_bytes) return true;
  ++counts_.overflowed;
  return false;
}

/// A leaky bucket as a meter (ITU-T I.371, virtual scheduling): a packet leaves when the link has sent all
/// before it, less the burst that the silence before has earned.
void ImpairedLink::enqueue(std::vector<std::byte> packet, Time now) {
  if (!has_room(packet.size())) return;
  bytes_ += packet.size();
  Time sent = now;
  if (impairment_.rate_bps != 0) {
    const auto bits = 8.0 * static_cast<double>(packet.size());
    const auto time = static_cast<Duration>(bits * kSecond / static_cast<double>(impairment_.rate_bps));
    free_at_ = std::max(free_at_, now) + time;
    sent = std::max(now, free_at_ - kBurst);
  }
  queue_.push_back({std::move(packet), sent + impairment_.delay});
}

/// Puts those into the queue that enough packets have overtaken, or that have waited long enough.
void ImpairedLink::release_held(Time now) {
  for (std::size_t left = held_.size(); left > 0; --left) {
    Held one = std::move(held_.front());
    held_.pop_front();
    if (one.behind > number_ && one.until > now) {
      held_.push_back(std::move(one));
      continue;
    }
    bytes_ -= one.packet.size();
    enqueue(std::move(one.packet), now);
  }
}

std::optional<MutableBytes> ImpairedLink::pop(Time now) {
  release_held(now);
  if (queue_.empty() || queue_.front().due > now) return std::nullopt;
  popped_ = std::move(queue_.front().packet);
  queue_.pop_front();
  bytes_ -= popped_.size();
  return popped_;
}

Time ImpairedLink::deadline() const {
  Time first = queue_.empty() ? kNever : queue_.front().due;
  for (const Held& one : held_) first = std::min(first, one.until);
  return first;
}

std::size_t ImpairedLink::backlog(Time now) const {
  const auto first = std::partition_point(
      queue_.begin(), queue_.end(), [&](const Waiting& one) { return one.due - impairment_.delay <= now; });
  return static_cast<std::size_t>(queue_.end() - first);
}

}  // namespace railweave::ports
