// SPDX-License-Identifier: Apache-2.0
// What every rail counts.
#pragma once

#include <cstdint>

#include "core/time.hpp"

namespace railweave {

/// Counts since the rail was opened. Bytes are payload of the rail's own protocol, retransmissions included.
struct RailStats {
  std::uint64_t slices = 0;
  std::uint64_t payload_bytes = 0;  // sizes of the slices completed
  std::uint64_t bytes_sent =
      0;  // on the link, from the Ethernet header up, super-packets as the frames they become
  std::uint64_t bytes_received = 0;
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t retransmissions = 0;  // packets sent again
  std::uint64_t duplicates = 0;       // packets received that brought nothing new
  std::uint64_t malformed = 0;        // packets refused: short, of another version, from a stranger
  std::uint64_t send_drops = 0;       // packets that this host's kernel would not send
  std::uint64_t segmentation_refused =
      0;              // super-packets that it would not cut, sent packet by packet instead
  Duration busy = 0;  // time with a slice in progress
};

}  // namespace railweave
