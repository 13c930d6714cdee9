// SPDX-License-Identifier: Apache-2.0
// A rail as the agent sees it: slices go in, completions come out, all on the loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/collective.hpp"
#include "core/time.hpp"
#include "loop/event_loop.hpp"

namespace railweave {

/// The part of one tensor that one rail carries in one collective. `output` may equal `input`, else they do
/// not overlap.
struct Slice {
  CallDescription call;
  const std::byte* input;
  std::byte* output;
  std::size_t count;  // elements in this slice, at least 1
  int world_size;
};

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
  Duration busy = 0;                  // time with a slice in progress
};

enum class FailureKind : std::uint8_t { kPeerLost, kMismatch, kRailDown, kInternal };

struct Failure {
  FailureKind kind;
  int rank;             // the peer concerned, or -1
  std::string message;  // names what happened, what was expected, what to do
  std::string rail{};   // where it happened, if not on the rail that tells of it
};

/// Told by the rail, on the loop's thread.
class RailListener {
 public:
  virtual ~RailListener() = default;
  virtual void slice_done(std::size_t rail, std::uint32_t op_index, Time now) = 0;
  virtual void rail_failed(std::size_t rail, const Failure& failure, Time now) = 0;
};

class Rail : public Timed {
 public:
  virtual std::string_view kind() const = 0;
  /// Starts a slice, or queues it behind those that run. Slices are started in the same order on every rank.
  virtual void start(const Slice& slice, Time now) = 0;
  /// Drops all slices in progress without completing them: the communicator is being closed or has failed.
  virtual void abort() = 0;
  /// Tells the peers, where this rail can, why this rank gives up.
  virtual void announce(const Failure&, Time) {}
  /// Says goodbye; no slice is in progress. `closed` is true once no peer needs anything from this rank any
  /// more.
  virtual void close(Time) {}
  virtual bool closed() const { return true; }
  virtual RailStats stats() const = 0;
};

}  // namespace railweave
