// SPDX-License-Identifier: Apache-2.0
// The counters of every rail.
#pragma once

#include <cstdint>

#include "core/time.hpp"

namespace railweave {

/// Why bytes were sent. The rest of what was sent is headers and acknowledgements.
struct SentBytes {
  std::uint64_t payload = 0;     // data of slices, the first time, in the rail's own format
  std::uint64_t resends = 0;     // packets sent again; like all following counts, of whole packets
  std::uint64_t recovery = 0;    // repair channels, and trials of a rail that was restarted
  std::uint64_t heartbeats = 0;  // signs of life
  std::uint64_t control = 0;     // agreement between ranks, and probes

  std::uint64_t sum() const { return payload + resends + recovery + heartbeats + control; }
  SentBytes& operator+=(const SentBytes& other) { return add(other, 1); }
  SentBytes& operator-=(const SentBytes& other) { return add(other, -1); }  // `other` is an earlier state

 private:
  SentBytes& add(const SentBytes& other, int sign) {
    for (auto count : {&SentBytes::payload, &SentBytes::resends, &SentBytes::recovery, &SentBytes::heartbeats,
                       &SentBytes::control})
      this->*count += static_cast<std::uint64_t>(sign) * (other.*count);
    return *this;
  }
};

/// Counts since the rail was opened.
struct RailStats {
  std::uint64_t slices = 0;
  std::uint64_t payload_bytes = 0;  // sizes of the slices completed
  // On the link, from the Ethernet header up. Super-packets count as the frames that they become.
  std::uint64_t bytes_sent = 0;
  SentBytes sent = {};  // of these
  std::uint64_t bytes_received = 0;
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t retransmissions = 0;       // packets sent again
  std::uint64_t duplicates = 0;            // packets received that brought nothing new
  std::uint64_t malformed = 0;             // packets refused: short, of another version, from a stranger
  std::uint64_t send_drops = 0;            // packets that this host's kernel would not send
  std::uint64_t segmentation_refused = 0;  // super-packets that the kernel would not cut: sent singly
  std::uint64_t multicast_bytes = 0;       // of tensors, sent once to all
  std::uint64_t fetched_bytes = 0;         // of tensors, multicast by others, but sent again by a peer
  std::uint64_t rings = 0;                 // times that a part of a tensor has gone round a ring of racks
  std::uint64_t ring_messages = 0;         // sent in these rings: 2 (members - 1) each time
  Duration busy = 0;                       // time with a slice in progress

  RailStats& operator+=(const RailStats& other) {
    for (auto count : {&RailStats::slices, &RailStats::payload_bytes, &RailStats::bytes_sent,
                       &RailStats::bytes_received, &RailStats::packets_sent, &RailStats::packets_received,
                       &RailStats::retransmissions, &RailStats::duplicates, &RailStats::malformed,
                       &RailStats::send_drops, &RailStats::segmentation_refused, &RailStats::multicast_bytes,
                       &RailStats::fetched_bytes, &RailStats::rings, &RailStats::ring_messages})
      this->*count += other.*count;
    sent += other.sent;
    busy += other.busy;
    return *this;
  }
};

}  // namespace railweave
