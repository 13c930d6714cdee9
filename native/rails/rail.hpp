// SPDX-License-Identifier: Apache-2.0
// A rail as the agent sees it: slices go in, completions come out, all on the loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "collectives/label.hpp"
#include "core/collective.hpp"
#include "core/failure.hpp"
#include "core/rail_stats.hpp"
#include "core/slice.hpp"
#include "core/time.hpp"
#include "loop/event_loop.hpp"

namespace railweave {

/// What a rail with aggregation trees knows of one of them. Counts since it was formed, over all its moves.
struct GroupStats {
  std::uint16_t group = 0;      // its number in the switches now; changes when it moves
  std::uint32_t slots = 0;      // chunks that may be in flight
  std::uint32_t in_flight = 0;  // now
  std::uint32_t window = 0;     // chunks that are let in flight now
  Duration rtt = 0;             // smoothed
  std::uint64_t contributions = 0;
  std::uint64_t results = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t early_retransmissions = 0;  // those that a gap caused, not the timer
  std::uint64_t timeouts = 0;
  std::uint64_t stale = 0;       // results of a group that it was before a move
  std::uint64_t duplicates = 0;  // results that were here already
  std::uint64_t mismatches = 0;  // results of contributions that did not belong together
  std::uint64_t refused = 0;     // malformed, or not for this child
  std::uint64_t probes_sent = 0;
  std::uint64_t probes_answered = 0;
  std::uint64_t nonfinite_chunks = 0;
  std::uint64_t moves = 0;
  double error_bound = 0;  // greatest error that fixed point can have caused in an element, so far
  // Slices that are multicast. Their chunks are no contributions; refused, stale and duplicates are all.
  std::uint64_t multicasts = 0;
  std::uint64_t multicast_bytes = 0;  // of tensors, sent once to all
  std::uint64_t fetched_bytes = 0;    // taken that a peer had to send again
  std::uint64_t answered_bytes = 0;   // sent again to peers
};

/// Contributions to a tree and probes have been silent for a while.
struct Stall {
  std::uint16_t group;
  bool first_switch_ok;  // it answers probes
  bool root_ok;          // probes come back from the root
  bool spoilt;           // the switch has a sum that the ranks' seals disprove
};

/// What one rail reports, on the loop's thread.
class RailListener {
 public:
  virtual ~RailListener() = default;
  /// In the order in which the rail's slices were started, always.
  virtual void slice_done(std::uint64_t id, Time now) = 0;
  virtual void rail_failed(const Failure& failure, Time now) = 0;
  /// The rail waits for a tree and goes on trying; reported once per silence.
  virtual void stalled(const Stall&, Time) {}
  /// What this rank calls there: as a TransportListener's.
  virtual std::optional<MessageLabel> pending_label(const SliceKey&) const { return std::nullopt; }
};

class Rail : public Timed {
 public:
  /// What the members agree upon before a rail that was halted is used again.
  struct Restart {
    std::uint32_t incarnation;         // of the connections; greater than all before
    std::vector<std::uint64_t> bases;  // the greatest of all ranks' `next_chunks`, each
  };

  virtual std::string_view kind() const = 0;
  /// Whether `start` may be called: a rail has no more slices than it works on.
  virtual bool takes() const { return true; }
  /// Slices are started in the same order on every rank.
  virtual void start(const Slice& slice, Time now) = 0;
  /// A call begins in which this rail has no part. A peer that uses it for that call calls something else.
  virtual void pass_over(const CallDescription&, Time) {}
  /// Whether this rank has had a sign of life of the peer's process on this rail a moment ago.
  virtual bool hears(int, Time) const { return false; }
  /// Drops all slices in progress without completing them: the communicator is being closed or has failed.
  virtual void abort() = 0;
  /// Drops all slices in progress without completing them and without a word to the peers; their memory is
  /// the caller's again. Nothing is reported any more until `restart`. May be repeated.
  virtual void halt(Time now) = 0;
  /// A halted rail joins its peers anew; what still comes of older incarnations is dropped. Peers may be
  /// late; what goes wrong is reported by `rail_failed`. Throws std::logic_error if the rail is not halted,
  /// or was in that incarnation before.
  virtual void restart(const Restart& restart, Time now) = 0;
  /// Joined with all peers: slices are carried out as they are started. Those that are started before wait.
  virtual bool ready() const = 0;
  /// The next chunk numbers that this rank would use, where chunks are numbered for a switch: per aggregation
  /// tree in the order of the trees, or of its connection; else empty.
  virtual std::vector<std::uint64_t> next_chunks() const { return {}; }
  /// Tells the peers, where this rail can, why this rank gives up.
  virtual void announce(const Failure&, Time) {}
  /// Says goodbye; no slice is in progress. `closed` is true once no peer needs anything from this rank any
  /// more.
  virtual void close(Time) {}
  virtual bool closed() const { return true; }
  virtual RailStats stats() const = 0;
  /// Grows with everything that brings slices on: a rail with slices for which it stands still is stuck.
  virtual std::uint64_t progress() const = 0;
  /// One per aggregation tree, if the rail has any.
  virtual std::vector<GroupStats> groups() const { return {}; }
};

}  // namespace railweave
