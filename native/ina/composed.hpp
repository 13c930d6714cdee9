// SPDX-License-Identifier: Apache-2.0
// An allreduce over racks of ranks and single ranks that form a ring (Chen et al., "Rina", ICNP 2024,
// arXiv 2407.19721).
//
// What the ranks contribute is what they would send to one tree of all of them (ina::Call): integers, whose
// sums and maxima depend on no order, so that all ranks get the same bits. They go in segments:
//
//   1. in each rack switches add: every rank gets the rack's sum of the columns of which it is the agent
//   2. each column goes round the ring of members, a reduce-scatter and an allgather
//   3. in each rack every agent hands its columns to the others
//
// A rank that is a member by itself has only the second step. The steps of up to kDepth segments overlap, two
// of which are in the ring: where one ends, the next one's messages follow. The steps of one segment overlap,
// too: racks sum and hand out pieces, in the order in which the ring takes blocks and completes them. Of a
// small tensor, columns would only multiply the messages: it goes round as one, with the first rank of each
// rack as agent, behind an allreduce in the rack and before a broadcast there.
//
// So do exponents, as bytes. Those of the first kLead segments of data are a segment by themselves, which all
// else waits for; where those of fewer segments than that are ahead of the data, a segment has with it those
// of the next kMostLead: few messages carry them.
//
// Racks take slices in one order on all of their ranks: the sums of segments 0 to kDepth - 1, then in turn
// the handing out of one and the sum of the next one, each piece by piece. Which items a segment has follows
// from the number of elements; class counts, which follow from results, begin when all data are complete.
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
  std::uint32_t lanes;                    // of a chunk: what has one exponent
  std::size_t message_bytes = 32 * 1024;  // of a segment, per member of the ring, at most
  std::size_t piece_bytes = 2 * 1024;     // of a column that a rack sums or hands out, at least
  std::size_t narrow_bytes = 20 * 1024;   // a tensor up to this is one column
  /// Starts a slice in this rank's rack, whose ends come in the order of their starts, by `rack_done`. Never
  /// called for a rank that is a member by itself.
  std::function<void(const Slice&, Time)> start_in_rack;
};

/// How much rings have exchanged.
struct RingCounts {
  std::uint64_t rings = 0;     // of a part's column each
  std::uint64_t messages = 0;  // sent
};

class ComposedAllReduce final : public Algorithm {
 public:
  /// Of a call that `carries`. `transport`, `ring` and `counts` outlive it.
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
  static constexpr std::size_t kLead = 6, kMostLead = 24;  // likewise, of exponents before data
  static constexpr std::size_t kSmall = 4;                 // of the largest segment: this part
  static constexpr std::size_t kMostPieces = 16;
  struct Blocks {  // of a column: side by side in memory
    std::size_t begin, end;
  };
  /// What of a segment is reduced alike.
  struct Part {
    std::vector<Item> items;
    std::size_t step;  // lanes of an item, and one for its flag where it may have one
    WireOp op;
    bool narrow;                        // it is one column
    bool bytes;                         // which goes round, and is handed out, as one byte per lane
    std::size_t column;                 // elements
    std::vector<std::int32_t> all;      // of all columns: what this rank contributes, in the end the result
    std::vector<std::int32_t> own;      // of the columns of which it is the agent
    std::vector<std::uint8_t> packed;   // where `bytes`: the column
    std::vector<Blocks> sums, spreads;  // the rack's pieces; none of a single rank
    std::size_t summed = 0, handed_out = 0;      // slices of the rack, one of each piece and own column
    std::size_t started = 0;                     // of `spreads`
    std::vector<std::unique_ptr<Column>> rings;  // of own columns
  };
  struct Segment {
    std::vector<Part> parts;
    bool in_ring = false, round = false;  // it has entered, and left the ring
  };

  bool in_rack() const { return ring_.rack().size() > 1; }
  std::size_t size() const { return static_cast<std::size_t>(ring_.size()); }
  /// How many slices of the rack are of one piece.
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
  std::vector<bool> nonfinite_;           // by item of exponents that is known
  Columns columns_;
  std::deque<Segment> segments_;
  std::size_t handed_out_ = 0;  // of `segments_`, from the first
  struct InRack {
    Part* part;
    bool sums;
  };
  std::deque<InRack> in_rack_;  // what the rack works on
  std::uint64_t rack_slices_ = 0;
};

}  // namespace railweave::ina
