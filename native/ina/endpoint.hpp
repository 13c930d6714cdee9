// SPDX-License-Identifier: Apache-2.0
// A rank's side of in-network aggregation, without I/O: slices and datagrams in, datagrams and events out.
//
// Chunk k, counted over all calls of the group, uses slot index k mod S, copy (k div S) mod 2 and round k div
// 2S. It is sent once the result of chunk k - S is here. So a result is its own acknowledgement.
//
// A chunk is sent again when it is overdue and chunks that were sent later have their results (after RACK,
// RFC 8985). It is then sent at growing intervals while others make progress. A timeout without any result is
// mostly due to a late rank. So the timer sends only the oldest few chunks, ever more rarely, and probes that
// switches answer without ranks (Prober).
//
// A group can move to another tree. `pause` returns the lowest chunk whose result this rank lacks. All ranks
// `resume` at the minimum of these positions. No rank can be more than S chunks past another rank's gap, or
// have sent more than S chunks past its own. So nobody can need more than the last 2 S contributions again.
//
// A spread call begins when READY tells that all ranks have entered it. READY stands behind the chunks of
// earlier calls. The multicast need not wait for these chunks, because they tell it as well. A contribution
// has LAST while its rank has begun no spread call after it. A result without LAST says that all ranks have.
//
// A group can also give up its calls and go on. `halt` drops all slices, and `next_chunk` is beyond all
// chunks that this rank has sent. When every rank has halted, all `restart` at the maximum of these numbers.
// Earlier chunks are void, and their numbers are not used again. So late packets of void chunks are older
// than the next chunks in the same slot and copy, and change nothing. Moves and restarts may come in any
// order, which may differ between ranks. A restart names a chunk counted over all groups, and a move names
// the first chunk of the new group.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <variant>

#include "core/bytes.hpp"
#include "core/failure.hpp"
#include "core/slice.hpp"
#include "core/time.hpp"
#include "ina/call.hpp"
#include "ina/flight.hpp"
#include "ina/packet.hpp"
#include "ina/prober.hpp"
#include "ina/seal.hpp"
#include "ina/window.hpp"

namespace railweave::ina {

/// A rank's options to seal packets and to check results.
struct SealOptions {
  Secret secret;
  std::uint64_t tree;  // tells apart all trees of a job
  int rank;
};

/// Return the key of this rank's probes; nothing without a seal.
inline std::optional<Key> probe_key(const std::optional<SealOptions>& seal) {
  if (!seal) return std::nullopt;
  std::array<std::byte, sizeof seal->rank> rank;
  store_be(rank.data(), seal->rank);
  return authenticate(derive_key(seal->secret, "probe", seal->tree), rank);
}

/// The controller's options of the group, and the user's options.
struct EndpointOptions {
  std::uint16_t group;
  std::uint8_t child;   // this rank's index at its switch
  std::uint32_t slots;  // S, a power of two
  std::uint32_t lanes;  // integers per packet
  int world_size;
  WindowOptions window{};     // `most` is capped by `slots`
  std::uint32_t reorder = 4;  // a chunk is lost if the chunk sent this many later has its result
  Duration stall_after = 300 * kMillisecond;  // without results and answers to probes, until Stalled
  Duration stall_every = kSecond;             // between further Stalled events
  std::optional<SealOptions> seal = {};       // without: all packets are trusted
  // Within this time, the group must be paused after Stalled with `spoilt`. Otherwise the endpoint fails. 0:
  // nobody moves the group, so the endpoint fails at once.
  Duration redo_within = 0;

  /// Throws std::invalid_argument for values outside the protocol's limits.
  const EndpointOptions& checked() const;
  WindowOptions capped_window() const;
};

/// The group in which an endpoint goes on after a move.
struct GroupConfig {
  std::uint16_t group;
  std::uint8_t child;
  std::uint32_t slots;
  std::uint32_t lanes;  // as before, because chunks stay the same
};

/// Why a datagram was refused.
enum class Refusal : std::uint8_t {
  kShort,    // less than a header
  kVersion,  // of another version
  kKind,     // neither RESULT nor PROBE
  kGroup,    // another group's
  kChild,    // another contributor's
  kLength,   // of a wrong size, or with the lanes of another rank, or without this rank's lanes
  kSlot,     // outside the group's slots
  kUnsent,   // a chunk or probe that was never sent
  kOp,       // not the op of the contribution
  kMark,     // of another collective without MISMATCH, or not written by a member
  kSeal,     // without the ranks' seal: damaged or forged
};
inline constexpr std::size_t kRefusals = 11;

/// Counts since the start. Packets, unless said otherwise.
struct EndpointStats {
  std::uint64_t contributions = 0;  // first transmissions
  std::uint64_t retransmissions = 0;
  std::uint64_t early_retransmissions = 0;  // caused by a gap, not by the timer
  std::uint64_t timeouts = 0;               // expiries of the timer
  std::uint64_t results = 0;                // taken
  std::uint64_t duplicates = 0;             // results that were here already, and late answers to probes
  std::uint64_t spurious = 0;               // retransmissions whose result was already under way
  std::uint64_t stale = 0;                  // of the group before a move, or received while paused
  std::uint64_t moves = 0;                  // resumptions
  std::uint64_t stalls = 0;                 // Stalled events
  std::uint64_t probes_sent = 0;
  std::uint64_t probes_answered = 0;
  std::uint64_t nonfinite_chunks = 0;  // chunks that took class counts
  double error_bound = 0;              // the largest that fixed point may cause in an element of a sum
  std::array<std::uint64_t, kRefusals> refused{};

  std::uint64_t refused_in_all() const;
};

/// The slice is complete: its output holds the result, and its input is the caller's again. Slices complete
/// in the order in which they were started.
struct SliceDone {
  std::uint64_t id;
};

/// All ranks have begun this slice, whose data go as SPREAD packets. The order is that of the starts, on
/// every rank. The caller reports the end of the data by `spread_done`. Then the endpoint reports SliceDone.
struct SpreadReady {
  std::uint64_t task;  // the same number on all ranks, and never used before
  Slice slice;
  Ready ready;  // of all ranks
  bool begun;   // announced before, by results of the preceding call; `ready` is now known
};

using Event = std::variant<SliceDone, Stalled, Failure>;

/// `now` never decreases from call to call. After a Failure event, and after `abort`, the endpoint is dead.
class Endpoint {
 public:
  /// Throws std::invalid_argument for options outside the protocol's limits.
  explicit Endpoint(const EndpointOptions& options);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// From now on the caller carries the data of SpreadReady, with at most `bytes` of payload per packet.
  void set_spread_bytes(std::uint32_t bytes) { spread_bytes_ = bytes; }
  /// Queues a slice after those in progress. Its memory stays valid until its SliceDone, a Failure or
  /// `abort`. Throws std::invalid_argument for another world size, an empty slice, or a call that switches
  /// cannot carry.
  void start(const Slice& slice);
  /// Takes one datagram from the network, from any sender.
  void receive(Bytes datagram, Time now);
  /// The next datagram to send now, or nothing. The bytes stay unchanged until the next call of `receive` or
  /// `expire`. After that they are still a valid packet, though perhaps a later one.
  Bytes transmit(Time now);
  /// When `expire` must be called; kNever if not.
  Time deadline() const;
  void expire(Time now);
  std::optional<Event> poll();
  /// Call this after every `receive`, because the peers' SPREAD packets may follow at once.
  std::optional<SpreadReady> poll_ready();
  /// The data of a slice from SpreadReady are in place.
  void spread_done(std::uint64_t slice_id);
  /// Drops all slices, without events.
  void abort();

  /// Drops all slices, without events. Sends and takes nothing until `restart`.
  void halt();
  /// Beyond all chunks that this rank has sent and all tasks that it has begun, counted over all groups.
  std::uint64_t next_chunk() const { return std::max(next_built_, next_task_); }
  /// Goes on at chunk `base`, the maximum of the next chunks of all ranks, which have all halted. Waits for
  /// `resume` if paused. Throws std::logic_error if not halted, std::invalid_argument for a base below this
  /// rank's own.
  void restart(std::uint64_t base, Time now);

  /// Sends and takes nothing until `resume`. Slices may still be started. Returns the position: the lowest
  /// chunk that this rank still needs, counted over all groups. Until then, only `restart` raises it.
  std::uint64_t pause(Time now);
  /// Goes on in another group, or in the same group with other serial numbers. Contributes from chunk
  /// `resume_from` on, the minimum of the positions of all ranks. It is chunk 0 of the new group. Throws
  /// std::logic_error if not paused. Throws std::invalid_argument for options outside the protocol's limits,
  /// other lanes, a chunk past this rank's position, or a chunk whose contribution is no longer kept. Then
  /// the endpoint stays paused.
  void resume(const GroupConfig& config, std::uint64_t resume_from, Time now);
  std::uint64_t position() const { return position_; }
  std::uint16_t group() const { return options_.group; }
  /// Whether packets of a group are of the present group, or late ones of the group before.
  bool knows(std::uint16_t group) const { return group == options_.group || group == left_group_; }
  std::uint32_t slots() const { return options_.slots; }

  bool idle() const { return calls_.empty(); }
  std::uint32_t in_flight() const { return fresh_.size() + again_.size(); }
  /// How long the endpoint has waited for a result; 0 if it awaits no result.
  Duration silence(Time now) const { return silent_at_ == kNever ? 0 : now - silent_since_; }
  const EndpointStats& stats() const { return stats_; }
  const Window& window() const { return window_; }

 private:
  std::uint16_t slot_field(std::uint64_t chunk) const;
  std::uint32_t round_field(std::uint64_t chunk) const;
  Call& call(std::uint64_t number) { return calls_[number - first_call_]; }

  Bytes transmit_again(Time now);
  Bytes transmit_next(Time now);
  bool quiet() const { return dead_ || halted_ || paused_; }
  /// The first chunk that this group carries.
  std::uint64_t first() const { return std::max(base_, floor_); }
  Call* issuing();
  void build();
  std::uint64_t in_network() const;
  Bytes depart(std::uint32_t index, Time now);

  void refuse(Refusal why) { ++stats_.refused[static_cast<std::size_t>(why)]; }
  void receive_probe(const Header& header, Time now);
  void receive_result(const Header& header, Bytes lanes, Time now);
  void accept(std::uint64_t chunk, const Header& header, Bytes lanes, Time now);
  void seal(Flight& flight, Header& header, std::byte* lanes);
  bool proven(std::uint64_t chunk, const Header& own, const Header& header, Bytes lanes) const;
  void refuse_lanes(std::uint64_t chunk, Time now);
  void redo(Flight& flight, Failure otherwise, Time now);
  bool awaits_redo() const;
  Failure wrong_sums(const std::string& what) const;
  Failure mismatch(const Call& owner) const;
  void note_gap(const Flight& flight, Time now);
  void learn(const Flight& flight, Time now);
  void finish_calls(std::uint64_t number);
  std::uint32_t unfinished_spreads() const;
  void enter(std::uint64_t task);
  void announce_spreads();

  Duration reorder_window() const;
  Duration patience(const Flight& flight) const;
  Time due(const FlightList& list) const;
  FlightList& earlier(FlightList& a, FlightList& b);
  void detect_losses(Time now);
  void declare_lost(FlightList& list, bool after_timeout);
  void expire_silence(Time now);
  void fail(Failure failure);
  void stop();
  void begin_anew(Time now);

  EndpointOptions options_;
  std::optional<Seal> seal_;
  std::uint32_t data_lanes_;
  std::uint32_t lead_;  // segments that exponents are ahead; as in the first group, on every rank
  Window window_;
  EndpointStats stats_;
  std::deque<Event> events_;
  std::deque<SpreadReady> ready_;
  bool dead_ = false;
  bool paused_ = false;
  bool halted_ = false;
  std::optional<std::uint16_t> left_group_;
  std::uint32_t spread_bytes_ = 0;  // 0: nothing is multicast

  std::deque<Call> calls_;          // from the oldest incomplete one
  std::uint64_t first_call_ = 0;    // number of calls_.front()
  std::uint64_t issuing_call_ = 0;  // the call whose items are being issued
  struct Spread {
    std::uint64_t call;
    std::uint64_t task;
    bool entered = false;  // by all ranks, as a result of the preceding call has told
    bool announced = false;
  };
  std::deque<Spread> spreads_;  // begun here; their READY's result, or that of an earlier one, is missing
  std::uint64_t next_task_ = 0;
  std::uint32_t ready_bytes_ = 0;  // of all ranks, from the latest READY; 0: no READY since a restart

  // Chunks are counted over all groups. Chunk base_ is chunk 0 of the present group.
  Flights flights_;
  std::uint64_t base_ = 0;
  std::uint64_t floor_ = 0;       // chunks before this one are void since a halt
  std::uint64_t next_sent_ = 0;   // the first chunk that was not sent to this group yet
  std::uint64_t next_built_ = 0;  // more than next_sent_ after a move
  std::uint64_t position_ = 0;
  FlightList fresh_;  // in flight, sent once to this group
  FlightList again_;  // in flight, sent more than once
  FlightList lost_;

  std::uint64_t next_transmission_ = 1;
  std::uint64_t newest_delivered_ = 0;  // number of the newest transmission that has its result
  Duration newest_rtt_ = 0;             // its round trip
  std::uint32_t reorder_steps_ = 1;     // of the reordering window
  std::uint64_t untimed_before_ = 0;    // transmissions before a timeout say nothing about round trips
  Time result_at_ = 0;                  // when the last one came
  Duration gap_ = 0;                    // before it, while the cause is not known
  Time progress_resumed_at_ = 0;        // when progress last followed silence
  bool silence_ = false;                // the timer has expired since the last result
  std::uint32_t burst_;                 // chunks that a timeout sends again
  Time silent_since_ = 0;               // the latest result, or the first chunk sent after that
  Time silent_at_ = kNever;             // when the timer expires
  Time stall_due_ = 0;                  // no Stalled event before this time
  Prober prober_{probe_key(options_.seal)};
  struct Redo {
    Time until;
    Failure otherwise;
  };
  std::optional<Redo> redo_;        // a chunk waits for a move, after which its sum is made again
  Time redo_due_ = 0;               // no move is requested on suspicion before this time
  std::optional<Time> damaged_at_;  // the latest result that was refused as damaged
};

}  // namespace railweave::ina
