// SPDX-License-Identifier: Apache-2.0
// A rank's side of in-network aggregation, without I/O: slices and datagrams in, datagrams and events out.
//
// Chunk k of the group, counted over all calls, uses slot index k mod S, copy (k div S) mod 2, round k div
// 2S, and is sent once the result of chunk k - S is here: a result is its own acknowledgement. A chunk is
// sent again when several that were sent later have their results already, or when nothing has come for a
// timeout. Silence is mostly a rank that is late, so the timer sends just the oldest few, and with them a
// probe that the switch returns by itself: when probes stay unanswered too, the rail is down.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <variant>
#include <vector>

#include "core/bytes.hpp"
#include "core/time.hpp"
#include "ina/call.hpp"
#include "ina/flight.hpp"
#include "ina/packet.hpp"
#include "ina/window.hpp"
#include "rails/rail.hpp"

namespace railweave::ina {

/// What the controller says about the group, and what the user may set.
struct EndpointOptions {
  std::uint16_t group;
  std::uint8_t child;   // this rank's index at its switch
  std::uint32_t slots;  // S, a power of two
  std::uint32_t lanes;  // integers per packet
  int world_size;
  WindowOptions window{};     // `most` is capped by `slots`
  std::uint32_t reorder = 4;  // a chunk is lost when one sent this many transmissions later has its result
  Duration silence_limit =
      10 * kSecond;  // without results and answers to probes, until the rail counts as down
};

/// Why a datagram was refused.
enum class Refusal : std::uint8_t {
  kShort,    // less than a header
  kVersion,  // of another version
  kKind,     // neither RESULT nor PROBE
  kGroup,    // another group's
  kChild,    // another contributor's
  kLength,   // not header and lanes
  kSlot,     // outside the group's slots
  kUnsent,   // a chunk or probe that was never sent
  kOp,       // not the op of the contribution
  kMark,     // of another collective, though the switch saw no mismatch
};
inline constexpr std::size_t kRefusals = 10;

/// Counts since the start. Packets, unless said otherwise.
struct EndpointStats {
  std::uint64_t contributions = 0;  // first transmissions
  std::uint64_t retransmissions = 0;
  std::uint64_t early_retransmissions = 0;  // those of the above that a gap caused, not the timer
  std::uint64_t timeouts = 0;               // expiries of the timer
  std::uint64_t results = 0;                // taken
  std::uint64_t duplicates = 0;             // results that were here already, and late answers to probes
  std::uint64_t probes_sent = 0;
  std::uint64_t probes_answered = 0;
  std::uint64_t nonfinite_chunks = 0;  // chunks that took class counts
  std::array<std::uint64_t, kRefusals> refused{};

  std::uint64_t refused_in_all() const;
};

/// The slice of call `op_index` is complete: its output holds the result, its input is the caller's again.
struct SliceDone {
  std::uint32_t op_index;
};

using Event = std::variant<SliceDone, Failure>;

/// `now` never decreases from call to call. After a Failure event, and after `abort`, the endpoint is dead.
class Endpoint {
 public:
  /// Throws std::invalid_argument for options outside the protocol's limits.
  explicit Endpoint(const EndpointOptions& options);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Queues a slice of at least one element behind those that run. Its memory stays valid until its
  /// SliceDone, a Failure or `abort`. Throws std::invalid_argument for another world size or an empty slice.
  void start(const Slice& slice);
  /// Takes one datagram from the network, whoever sent it.
  void receive(Bytes datagram, Time now);
  /// The next datagram to send now; empty if there is none. The bytes stay as they are until the next call of
  /// `receive` or `expire`; after it they are still a valid packet, though perhaps a later one.
  Bytes transmit(Time now);
  /// When `expire` wants to be called; kNever if not.
  Time deadline() const { return timer_; }
  void expire(Time now);
  std::optional<Event> poll();
  /// Drops all slices, without events.
  void abort();

  bool idle() const { return calls_.empty(); }
  std::uint32_t in_flight() const { return in_flight_.size(); }
  const EndpointStats& stats() const { return stats_; }
  const Window& window() const { return window_; }

 private:
  std::uint16_t slot_field(std::uint64_t chunk) const;
  std::uint32_t round_field(std::uint64_t chunk) const;
  std::byte* packet(std::uint32_t slot) { return packets_.data() + slot * packet_bytes(options_.lanes); }
  Call& call(std::uint64_t number) { return calls_[number - first_call_]; }

  Bytes transmit_probe(Time now);
  Bytes transmit_again(Time now);
  Bytes transmit_next(Time now);
  Call* issuing();
  Bytes depart(std::uint32_t slot, Time now);

  void refuse(Refusal why) { ++stats_.refused[static_cast<std::size_t>(why)]; }
  void receive_probe(const Header& header, Time now);
  void receive_result(const Header& header, const std::byte* lanes, Time now);
  void accept(std::uint32_t slot, const Header& header, const std::byte* lanes, Time now);
  void learn(const Flight& flight, Time now);
  void detect_losses(Time now);
  void mark_lost(std::uint32_t slot, bool after_timeout);
  void finish_calls(std::uint64_t number);
  void fail(Failure failure);
  void stop();

  EndpointOptions options_;
  Window window_;
  EndpointStats stats_;
  std::deque<Event> events_;
  bool dead_ = false;

  std::deque<Call> calls_;          // from the oldest incomplete one
  std::uint64_t first_call_ = 0;    // number of calls_.front()
  std::uint64_t issuing_call_ = 0;  // the one whose items are being issued
  std::uint64_t next_chunk_ = 0;

  std::vector<std::byte>
      packets_;  // as built, one per slot, side by side: neighbours leave as one super-packet
  std::vector<Flight> flights_;
  FlightList in_flight_;
  FlightList lost_;
  std::uint64_t next_transmission_ = 1;
  std::uint64_t newest_delivered_ = 0;  // number of a transmission
  std::uint64_t untimed_before_ = 0;    // transmissions before a timeout say nothing about round trips
  std::uint32_t burst_;                 // chunks that a timeout sends again
  Time timer_ = kNever;

  std::array<std::byte, kHeaderBytes> probe_;
  bool probe_due_ = false;
  std::uint32_t probe_number_ = 0;
  Time probe_sent_at_ = kNever;
  Time silent_since_ = kNever;
};

}  // namespace railweave::ina
