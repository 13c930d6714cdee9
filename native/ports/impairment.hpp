// SPDX-License-Identifier: Apache-2.0
// An impaired link: loses, duplicates, reorders, delays, throttles and corrupts packets. No I/O and no clock:
// packets and the time go in, packets and a deadline come out.
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

/// Impairments of one port in one direction. Probabilities are 0 to 1 and independent of each other.
struct Impairment {
  double loss = 0;
  double duplicate = 0;  // a second copy right behind the first
  double reorder = 0;    // one to three later packets overtake the packet, or 10 ms pass
  double corrupt = 0;    // one bit is flipped
  Duration delay = 0;
  std::uint64_t rate_bps = 0;  // counts bits from the Ethernet header on; 0: unlimited
  std::uint64_t seed = 0;
  std::size_t queue_bytes = 4 << 20;  // limit per priority; more packets are dropped
};

/// Counts of packets. A lost packet is counted only as lost.
struct ImpairmentCounts {
  std::uint64_t packets = 0, lost = 0, duplicated = 0, reordered = 0, corrupted = 0;
  std::uint64_t overflowed = 0;  // the queue was full
};

/// One direction of a link. The seed and n alone determine the impairments of packet number n.
class ImpairedLink {
 public:
  static constexpr Duration kLongestHold = 10 * kMillisecond;
  static constexpr Duration kBurst = kMillisecond;  // sent at once after silence; as time at the full rate

  explicit ImpairedLink(const Impairment& impairment) : impairment_(impairment) {}

  /// Queues a packet before waiting packets of lower priority.
  void push(Bytes packet, Time now, std::size_t priority = 0);

  /// Returns the next due packet; valid until the next call of any method.
  std::optional<MutableBytes> pop(Time now);

  /// The time at which `pop` returns the next packet.
  Time deadline() const;

  /// Number of packets of a priority that wait for the link's rate.
  std::size_t backlog(Time now, std::size_t priority = 0) const;
  /// How long a packet would wait for the link's rate if it came now.
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
    Time sent;      // end of the transmission
    Duration time;  // of the transmission
  };
  struct Held {
    Packet packet;
    std::uint64_t behind;  // number of the packet that must come before it
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
  std::array<std::size_t, kMaxPriorityQueues> bytes_{};  // of waiting packets, by priority
  Time free_at_ = 0;                                     // end of all queued transmissions
  std::deque<Waiting> queue_;
  std::deque<Held> held_;
  std::vector<std::byte> popped_;
};

}  // namespace railweave::ports
