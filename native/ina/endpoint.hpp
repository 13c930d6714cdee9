// SPDX-License-Identifier: Apache-2.0
// A rank's side of in-network aggregation, without I/O: slices and datagrams in, datagrams and events out.
//
// Chunk k of the group, counted over all calls, uses slot index k mod S, copy (k div S) mod 2, round k div
// 2S, and is sent once the result of chunk k - S is here: a result is its own acknowledgement.
//
// A chunk is sent again when others that were sent later have their results and it is overdue (after RACK,
// RFC 8985), and then at growing intervals as long as others make progress. When nothing comes at all for a
// timeout, that is mostly a rank that is late: the timer sends just the oldest few, ever more rarely, and
// with them probes that switches return by themselves (Prober).
//
// A group can move to another tree. `pause` says from where on this rank lacks results; the least such
// position of all ranks is where all `resume`. No rank can be more than S chunks past another's gap, nor have
// sent more than S chunks past its own, so the last 2 S contributions are all that anybody can need again.
//
// A spread call begins when READY tells that all ranks have entered it. READY stands behind the chunks of the
// calls before it; so that a multicast need not wait for these, their chunks tell it as well: a contribution
// has LAST while its rank has begun no spread call behind it, and a result without LAST says that all have.
//
// A group can also give up what it is at, and go on: `halt` drops all slices, `next_chunk` is beyond all
// chunks that this rank has sent, and once every rank has halted, all `restart` at the greatest of these. The
// chunks before it are void. Their numbers are not used again, so what is still under way of them is older
// than what follows in the same slot and copy, and changes nothing there. Moves and restarts may come in any
// order, also a different one on each rank: a restart names a chunk over all groups, a move the new group's
// first one.
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

/// What a rank needs to seal its packets, and to open results.
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

/// What the controller says about the group, and what the user may set.
struct EndpointOptions {
  std::uint16_t group;
  std::uint8_t child;   // this rank's index at its switch
  std::uint32_t slots;  // S, a power of two
  std::uint32_t lanes;  // integers per packet
  int world_size;
  WindowOptions window{};     // `most` is capped by `slots`
  std::uint32_t reorder = 4;  // a chunk is lost when one sent this many transmissions later has its result
  Duration stall_after = 300 * kMillisecond;  // without results and answers to probes, until Stalled
  Duration stall_every = kSecond;             // then, while that lasts
  std::optional<SealOptions> seal = {};       // none: whoever can reach the switch or this rank is trusted
  // Within this time the group is paused after Stalled has said that it is spoilt; else the endpoint fails.
  // 0: nobody moves the group, so the endpoint fails at once.
  Duration redo_within = 0;

  /// Throws std::invalid_argument for what is outside the protocol's limits.
  const EndpointOptions& checked() const;
  WindowOptions capped_window() const;
};

/// Where a group goes on after a move.
struct GroupConfig {
  std::uint16_t group;
  std::uint8_t child;
  std::uint32_t slots;
  std::uint32_t lanes;  // as before: chunks stay what they are
};

/// Why a datagram was refused.
enum class Refusal : std::uint8_t {
  kShort,    // less than a header
  kVersion,  // of another version
  kKind,     // neither RESULT nor PROBE
  kGroup,    // another group's
  kChild,    // another contributor's
  kLength,  // not header and lanes, or lanes where they are another rank's, or none where they are this one's
  kSlot,    // outside the group's slots
  kUnsent,  // a chunk or probe that was never sent
  kOp,      // not the op of the contribution
  kMark,    // of another collective, though the switch saw no mismatch, or of no member
  kSeal,    // not what the ranks have contributed: damaged, or forged
};
inline constexpr std::size_t kRefusals = 11;

/// Counts since the start. Packets, unless said otherwise.
struct EndpointStats {
  std::uint64_t contributions = 0;  // first transmissions
  std::uint64_t retransmissions = 0;
  std::uint64_t early_retransmissions = 0;  // those of the above that a gap caused, not the timer
  std::uint64_t timeouts = 0;               // expiries of the timer
  std::uint64_t results = 0;                // taken
  std::uint64_t duplicates = 0;             // results that were here already, and late answers to probes
  std::uint64_t spurious = 0;               // retransmissions of chunks whose result was under way
  std::uint64_t stale = 0;                  // of the group before a move, or while paused
  std::uint64_t moves = 0;                  // resumptions
  std::uint64_t stalls = 0;                 // Stalled events
  std::uint64_t probes_sent = 0;
  std::uint64_t probes_answered = 0;
  std::uint64_t nonfinite_chunks = 0;  // chunks that took class counts
  double error_bound = 0;  // the greatest that fixed point may have had on an element of a sum, absolute
  std::array<std::uint64_t, kRefusals> refused{};

  std::uint64_t refused_in_all() const;
};

/// That slice is complete: its output holds the result, its input is the caller's again. They complete in the
/// order in which they were started.
struct SliceDone {
  std::uint64_t id;
};

/// All ranks have begun this slice, whose data go as SPREAD packets: in the order of their start, on every
/// rank. Told by `spread_done` of their end, the endpoint reports SliceDone.
struct SpreadReady {
  std::uint64_t task;  // the same number on all ranks, and never used before
  Slice slice;
  Ready ready;  // of all ranks
  bool begun;   // it was told before, from the results of the call in front of it: here is what READY says
};

using Event = std::variant<SliceDone, Stalled, Failure>;

/// `now` never decreases from call to call. After a Failure event, and after `abort`, the endpoint is dead.
class Endpoint {
 public:
  /// Throws std::invalid_argument for options outside the protocol's limits.
  explicit Endpoint(const EndpointOptions& options);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// From now on somebody carries the data of SpreadReady, in packets whose payload has at most so many bytes
  /// here.
  void set_spread_bytes(std::uint32_t bytes) { spread_bytes_ = bytes; }
  /// Queues a slice of at least one element behind those that run. Its memory stays valid until its
  /// SliceDone, a Failure or `abort`. Throws std::invalid_argument for another world size, an empty slice, or
  /// what switches cannot reduce.
  void start(const Slice& slice);
  /// Takes one datagram from the network, whoever sent it.
  void receive(Bytes datagram, Time now);
  /// The next datagram to send now; empty if there is none. The bytes stay as they are until the next call of
  /// `receive` or `expire`; after it they are still a valid packet, though perhaps a later one.
  Bytes transmit(Time now);
  /// When `expire` wants to be called; kNever if not.
  Time deadline() const;
  void expire(Time now);
  std::optional<Event> poll();
  /// After every `receive`: what peers spread may already follow.
  std::optional<SpreadReady> poll_ready();
  /// The data of a slice that was SpreadReady are in place.
  void spread_done(std::uint64_t slice_id);
  /// Drops all slices, without events.
  void abort();

  /// The same, and sends and takes nothing until `restart`.
  void halt();
  /// Beyond all chunks that this rank has sent and all tasks that it has begun, counted over all groups.
  std::uint64_t next_chunk() const { return std::max(next_built_, next_task_); }
  /// Goes on at chunk `base`, the greatest next chunk of all ranks, which all have halted. Waits for `resume`
  /// if paused. Throws std::logic_error if not halted, std::invalid_argument for a base below this rank's
  /// own.
  void restart(std::uint64_t base, Time now);

  /// Sends and takes nothing until `resume`. Returns the position: the lowest chunk that this rank still
  /// needs, counted over all groups; until then it stays the same, or grows by `restart`. Slices may still be
  /// started.
  std::uint64_t pause(Time now);
  /// Goes on in another group, or the same with other serial numbers: contributes from chunk `resume_from`
  /// on, the least position of all ranks, which is the new group's chunk 0. Throws std::invalid_argument for
  /// options outside the protocol's limits, other lanes, a chunk past this rank's position or one whose
  /// contribution is no longer kept, std::logic_error if not paused; the endpoint then stays paused.
  void resume(const GroupConfig& config, std::uint64_t resume_from, Time now);
  std::uint64_t position() const { return position_; }
  std::uint16_t group() const { return options_.group; }
  /// The present group's packets, or late ones of the group before.
  bool knows(std::uint16_t group) const { return group == options_.group || group == left_group_; }
  std::uint32_t slots() const { return options_.slots; }

  bool idle() const { return calls_.empty(); }
  std::uint32_t in_flight() const { return fresh_.size() + again_.size(); }
  /// How long it has waited for a result; 0 where none is awaited.
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
  std::uint32_t lead_;  // of exponents, in segments: of the first group, as every rank must issue alike
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
  std::uint64_t issuing_call_ = 0;  // the one whose items are being issued
  struct Spread {
    std::uint64_t call;
    std::uint64_t task;
    bool entered = false;  // by all ranks, as a result of the call before it has told
    bool announced = false;
  };
  std::deque<Spread> spreads_;  // begun here; READY's result is not here, or that of one before
  std::uint64_t next_task_ = 0;
  std::uint32_t ready_bytes_ = 0;  // of all ranks, as the latest READY told; 0: none since a restart

  // Chunks are counted over all groups; the present one calls chunk base_ its chunk 0.
  Flights flights_;
  std::uint64_t base_ = 0;
  std::uint64_t floor_ = 0;       // what is before it is void, since a halt
  std::uint64_t next_sent_ = 0;   // the first that this group has not got yet
  std::uint64_t next_built_ = 0;  // more than next_sent_ after a move
  std::uint64_t position_ = 0;
  FlightList fresh_;  // in flight, sent once to this group
  FlightList again_;  // in flight, sent more than once
  FlightList lost_;

  std::uint64_t next_transmission_ = 1;
  std::uint64_t newest_delivered_ = 0;  // number of a transmission
  Duration newest_rtt_ = 0;             // its round trip
  std::uint32_t reorder_steps_ = 1;     // of the reordering window
  std::uint64_t untimed_before_ = 0;    // transmissions before a timeout say nothing about round trips
  Time result_at_ = 0;                  // when the last one came
  Duration gap_ = 0;                    // before it, if it is not known yet what from
  Time progress_resumed_at_ = 0;        // when progress last followed silence
  bool silence_ = false;                // the timer has expired since the last result
  std::uint32_t burst_;                 // chunks that a timeout sends again
  Time silent_since_ = 0;               // the latest result, or when they began to be awaited
  Time silent_at_ = kNever;             // when the timer expires
  Time stall_due_ = 0;                  // no Stalled before
  Prober prober_{probe_key(options_.seal)};
  struct Redo {
    Time until;
    Failure otherwise;
  };
  std::optional<Redo> redo_;        // a chunk waits for a move, which makes its sum again
  Time redo_due_ = 0;               // no move for a mere suspicion before
  std::optional<Time> damaged_at_;  // the latest result that was refused as damaged
};

}  // namespace railweave::ina
