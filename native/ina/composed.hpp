// SPDX-License-Identifier: Apache-2.0
// An allreduce over racks of ranks and single ranks that form a ring (Chen et al., "Rina", ICNP 2024, arXiv
// 2407.19721).
//
// Each rank contributes the integers that it would send to one tree of all ranks (ina::Call). Sums and maxima
// of integers do not depend on their order, so all ranks get the same bits. The integers go in segments:
//
//   1. In each rack, switches add. Every rank gets the rack's sum of the columns for which it is the agent.
//   2. Each column goes round the ring of members, in a reduce-scatter and an allgather.
//   3. In each rack, every agent hands its columns to the other ranks.
//
// A single rank has only the second step. The steps of up to kDepth segments overlap. Two segments are in the
// ring, so that the messages of one follow those of the other. The steps of one segment overlap, too: racks
// sum and hand out pieces in the order in which the ring takes and completes blocks. A small tensor is one
// column, because more columns only multiply its messages. It takes an allreduce in the rack, the ring with
// the first rank of each rack as agent, and a broadcast in the rack.
//
// Exponents take the path of a small tensor, as bytes. The exponents of the first kLead segments of data are
// one segment, for which all others wait. Later, if the exponents of fewer than kLead segments are ahead, a
// segment carries those of the next kMostLead segments. So few messages carry exponents.
//
// All ranks of a rack start slices in the same order. First come the sums of segments 0 to kDepth - 1. Then
// handing out one segment and summing the next alternate, piece by piece. The number of elements determines
// the items of a segment. Class counts depend on results, so they begin when all data are complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/columns.hpp"
#include "ina/call.hpp"

namespace railweave::ina {

struct ComposedOptions {
  std::uint32_t lanes;                    // of a chunk, which has one exponent
  std::size_t message_bytes = 32 * 1024;  // the most of a segment, per member of the ring
  std::size_t piece_bytes = 2 * 1024;     // the least of a column that a rack sums or hands out at once
  std::size_t narrow_bytes = 20 * 1024;   // a tensor up to this is one column
  /// Starts a slice in this rank's rack. `rack_done` reports the ends, in the order of the starts. Never
  /// called for a single rank.
  std::function<void(const Slice&, Time)> start_in_rack;
};

/// How much rings have exchanged.
struct RingCounts {
  std::uint64_t rings = 0;     // one per column of a part
  std::uint64_t messages = 0;  // sent
};

class ComposedAllReduce final : public Algorithm {
 public:
  /// The call is one that `carries` accepts. `transport`, `ring`, `options` and `counts` outlive this object.
  ComposedAllReduce(Transport& transport, const MemberRing& ring, const Slice& slice,
                    const ComposedOptions& options, RingCounts& counts);

  void note_sent(int peer) override;
  bool awaits_sent(int peer) const override { return columns_.awaits_sent(peer); }
  void note_received(int peer) override;
  /// The oldest slice in the rack is complete; `advance` follows.
  void rack_done();
  void advance(Time now) override;
  bool ready() const override { return call_.complete(); }
  bool finished() const override { return ready(); }

 private:
  static constexpr std::size_t kDepth = 4, kInRing = 2;    // segments
  static constexpr std::size_t kLead = 6, kMostLead = 24;  // segments of exponents before data
  static constexpr std::size_t kSmall = 4;                 // a small segment is this part of the largest
  static constexpr std::size_t kMostPieces = 16;
  struct Blocks {  // of a column, adjacent in memory
    std::size_t begin, end;
  };
  /// The items of a segment that are reduced in the same way.
  struct Part {
    std::vector<Item> items;
    std::size_t step;  // lanes of an item, and one for its flag where it may have one
    WireOp op;
    bool narrow;                        // it is one column
    bool bytes;                         // it goes round and is handed out as one byte per lane
    std::size_t column;                 // elements
    std::vector<std::int32_t> all;      // of all columns: this rank's contribution, in the end the result
    std::vector<std::int32_t> own;      // of the columns for which this rank is the agent
    std::vector<std::uint8_t> packed;   // where `bytes`: the column
    std::vector<Blocks> sums, spreads;  // the rack's pieces; empty for a single rank
    std::size_t summed = 0, handed_out = 0;      // slices of the rack, one per piece and own column
    std::size_t started = 0;                     // of `spreads`
    std::vector<std::unique_ptr<Column>> rings;  // of own columns
  };
  struct Segment {
    std::vector<Part> parts;
    bool in_ring = false, round = false;  // it has entered the ring, it has left it
  };

  bool in_rack() const { return ring_.rack().size() > 1; }
  std::size_t size() const { return static_cast<std::size_t>(ring_.size()); }
  /// How many slices of the rack one piece has.
  std::size_t slices(const Part& part) const {
    return part.narrow ? 1 : static_cast<std::size_t>(ring_.own_columns());
  }
  bool complete(const Segment& segment) const;
  std::uint32_t total(Phase phase) const { return phase == Phase::kData ? data_ : exponents_; }
  /// The first item of a phase that is not issued.
  std::uint32_t first_left(Phase phase) const {
    return total(phase) - static_cast<std::uint32_t>(call_.left(phase));
  }
  std::size_t most_items() const;
  std::size_t items_after(std::size_t issued) const;
  std::uint32_t exponents_for(std::size_t issued, std::size_t segments) const;
  bool waits_for_exponents() const;
  bool may_build() const;
  void build(Time now);
  void add_part(Segment& segment, Phase phase, std::uint32_t count);
  Item next_item(Phase phase) const;
  bool may_be_flagged(Phase phase, std::uint32_t count) const;
  std::vector<Blocks> pieces(const Part& part, int first) const;
  void start_in_rack(Part& part, const Blocks& piece, Collective collective, Time now);
  bool may_enter(const Segment& segment) const;
  void enter_ring(Segment& segment);
  void provide(const Part& part);
  void go_round(Segment& segment, Time now);
  bool hand_out(Segment& segment, Time now);
  void absorb(const Segment& segment);

  const MemberRing& ring_;
  const Slice slice_;
  const ComposedOptions& options_;
  RingCounts& counts_;
  Call call_;
  const std::uint32_t exponents_, data_;  // items in all
  std::vector<bool> nonfinite_;           // by item of exponents, as far as known
  Columns columns_;
  std::deque<Segment> segments_;
  std::size_t handed_out_ = 0;  // of `segments_`, from the first
  struct InRack {
    Part* part;
    bool sums;
  };
  std::deque<InRack> in_rack_;  // the rack's slices in progress
  std::uint64_t rack_slices_ = 0;
};

}  // namespace railweave::ina
