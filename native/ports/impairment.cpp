// SPDX-License-Identifier: Apache-2.0
#include "ports/impairment.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
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

void ImpairedLink::push(Bytes packet, Time now, std::size_t priority) {
  ++number_;
  ++counts_.packets;
  if (happens(kLoss, impairment_.loss)) {
    ++counts_.lost;
    return release_held(now);
  }
  const bool twice = happens(kDuplicate, impairment_.duplicate);
  Packet copy{{packet.begin(), packet.end()}, priority};
  if (!packet.empty() && happens(kCorrupt, impairment_.corrupt)) {
    ++counts_.corrupted;
    const std::uint64_t bit = draw(kBit) % (8 * packet.size());
    copy.bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  if (twice) {
    ++counts_.duplicated;
    enqueue(copy, now);
  }
  if (!happens(kReorder, impairment_.reorder)) {
    enqueue(std::move(copy), now);
  } else if (has_room(copy)) {
    ++counts_.reordered;
    bytes_.at(priority) += packet.size();
    held_.push_back({std::move(copy), number_ + 1 + draw(kGap) % kMostOvertake, now + kLongestHold});
  }
  release_held(now);
}

bool ImpairedLink::has_room(const Packet& packet) {
  if (bytes_.at(packet.priority) + packet.bytes.size() <= impairment_.queue_bytes) return true;
  ++counts_.overflowed;
  return false;
}

/// Time that the link takes to send a packet.
Duration ImpairedLink::time(const Packet& packet) const {
  if (impairment_.rate_bps == 0) return 0;
  const auto bits = 8.0 * static_cast<double>(packet.bytes.size());
  return static_cast<Duration>(bits * kSecond / static_cast<double>(impairment_.rate_bps));
}

/// A leaky bucket as a meter (ITU-T I.371, virtual scheduling). A packet leaves after all earlier packets,
/// minus the burst that the previous silence allows.
void ImpairedLink::enqueue(Packet packet, Time now) {
  if (!has_room(packet)) return;
  bytes_[packet.priority] += packet.bytes.size();
  const Duration taken = time(packet);
  Time sent = now;
  if (taken != 0) {
    free_at_ = std::max(free_at_, now) + taken;
    sent = std::max(now, free_at_ - kBurst);
  }
  auto at = queue_.end();
  for (; at != queue_.begin(); --at) {
    Waiting& before = *std::prev(at);
    const Time begins = before.sent - before.time;
    if (before.packet.priority >= packet.priority || begins <= now) break;
    sent = begins + taken;
    before.sent += taken;
  }
  queue_.insert(at, Waiting{std::move(packet), sent, taken});
}

/// Queues held packets that enough packets have overtaken or that have waited long enough.
void ImpairedLink::release_held(Time now) {
  for (std::size_t left = held_.size(); left > 0; --left) {
    Held one = std::move(held_.front());
    held_.pop_front();
    if (one.behind > number_ && one.until > now) {
      held_.push_back(std::move(one));
      continue;
    }
    bytes_[one.packet.priority] -= one.packet.bytes.size();
    enqueue(std::move(one.packet), now);
  }
}

std::optional<MutableBytes> ImpairedLink::pop(Time now) {
  release_held(now);
  if (queue_.empty() || due(queue_.front()) > now) return std::nullopt;
  Packet& first = queue_.front().packet;
  bytes_[first.priority] -= first.bytes.size();
  popped_ = std::move(first.bytes);
  queue_.pop_front();
  return popped_;
}

Time ImpairedLink::deadline() const {
  Time first = queue_.empty() ? kNever : due(queue_.front());
  for (const Held& one : held_) first = std::min(first, one.until);
  return first;
}

std::size_t ImpairedLink::backlog(Time now, std::size_t priority) const {
  const auto first =
      std::partition_point(queue_.begin(), queue_.end(), [&](const Waiting& one) { return one.sent <= now; });
  return static_cast<std::size_t>(std::count_if(
      first, queue_.end(), [&](const Waiting& one) { return one.packet.priority == priority; }));
}

Duration ImpairedLink::wait(Time now, std::size_t priority) const {
  const auto last = std::find_if(queue_.rbegin(), queue_.rend(),
                                 [&](const Waiting& one) { return one.packet.priority >= priority; });
  return last == queue_.rend() ? 0 : std::max<Duration>(last->sent - now, 0);
}

}  // namespace railweave::ports
