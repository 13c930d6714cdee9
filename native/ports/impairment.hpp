// SPDX-License-Identifier: Apache-2.0
// A bad link: loses, repeats, reorders, delays, throttles and spoils packets. No I/O and no clock: packets
// and the time go in, packets and a deadline come out.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/bytes.hpp"
#include "core/time.hpp"
#include "ports/output_queue.hpp"

namespace railweave::ports {

/// What befalls the packets of one port in one direction. Probabilities are 0 to 1, independent of each
/// other.
struct Impairment {
  double loss = 0;
  double duplicate = 0;  // a second copy right behind the first
  double reorder = 0;    // one to three later packets overtake it, or 10 ms pass
  double corrupt = 0;    // one bit is flipped
  Duration delay = 0;
  std::uint64_t rate_bps = 0;  // of bits from the Ethernet header on; 0: unlimited
  std::uint64_t seed = 0;
  std::size_t queue_bytes = 4 << 20;  // waiting with one priority; more packets are dropped
};

/// What has become of the packets. One that is lost is nothing else.
struct ImpairmentCounts {
  std::uint64_t packets = 0, lost = 0, duplicated = 0, reordered = 0, corrupted = 0;
  std::uint64_t overflowed = 0;  // the queue was full
};

/// One direction of a link. What happens to packet number n depends on the seed and n alone.
class ImpairedLink {
 public:
  static constexpr Duration kLongestHold = 10 * kMillisecond;
  static constexpr Duration kBurst = kMillisecond;  // sent at once after silence, as time at the full rate

  explicit ImpairedLink(const Impairment& impairment) : impairment_(impairment) {}

  /// A packet goes in front of packets of lower priority that wait for the link's rate.
  void push(Bytes packet, Time now, std::size_t priority = 0);

  /// The next packet that is due; valid until the next call of a member.
  std::optional<MutableBytes> pop(Time now);

  /// When `pop` will have the next packet.
  Time deadline() const;

  /// Packets of a priority that wait for their turn at the link's rate.
  std::size_t backlog(Time now, std::size_t priority = 0) const;
  /// How long a packet that comes now would wait for its turn.
  Duration wait(Time now, std::size_t priority = 0) const;

  const Impairment& impairment() const { return impairment_; }
  const ImpairmentCounts& counts() const { return counts_; }

 private:
  struct Packet {
    std::vector<std::byte> bytes;
    std::size_t priority;
  };
  struct Waiting {
    Packet packet;
    Time sent;      // when the link has sent it
    Duration time;  // of the transmission
  };
  struct Held {
    Packet packet;
    std::uint64_t behind;  // goes behind the packet of this number
    Time until;
  };
  enum Decision : std::uint64_t { kLoss, kDuplicate, kReorder, kCorrupt, kGap, kBit };

  std::uint64_t draw(Decision decision) const;
  bool happens(Decision decision, double probability) const;
  Time due(const Waiting& one) const { return one.sent + impairment_.delay; }
  bool has_room(const Packet& packet);
  Duration time(const Packet& packet) const;
  void enqueue(Packet packet, Time now);
  void release_held(Time now);

  Impairment impairment_;
  ImpairmentCounts counts_;
  std::uint64_t number_ = 0;                             // of the present packet
  std::array<std::size_t, kMaxPriorityQueues> bytes_{};  // waiting, by priority
  Time free_at_ = 0;                                     // when the link has sent all that is queued
  std::deque<Waiting> queue_;
  std::deque<Held> held_;
  std::vector<std::byte> popped_;
};

}  // namespace railweave::ports
