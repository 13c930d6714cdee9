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
// A rank that is a member by itself has only the second step. The steps of up to kDepth segments overlap.
// Of a small segment, columns would only multiply the messages: it goes round as one, with the first rank of
// each rack as agent, behind an allreduce in the rack and before a broadcast there.
// Racks take slices in one order on all of their ranks: the sums of segments 0 to kDepth - 1, then in turn
// the handing out of one and the sum of the next one. A phase of the call begins when the one before is
// complete everywhere, so that the sequence of segments is the same on all ranks, too.
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
  std::uint32_t lanes;                     // of a chunk: what has one exponent
  std::size_t segment_bytes = 256 * 1024;  // of contributions, at most
  /// Starts a slice in this rank's rack, whose ends come in the order of their starts, by `rack_done`. Never
  /// called for a rank that is a member by itself.
  std::function<void(const Slice&, Time)> start_in_rack;
};

/// How much rings have exchanged.
struct RingCounts {
  std::uint64_t rings = 0;     // of a segment's column each
  std::uint64_t messages = 0;  // sent
};

class ComposedAllReduce final : public Algorithm {
 public:
  /// Of a call that `carries`. `transport`, `ring` and `counts` outlive it.
  ComposedAllReduce(Transport& transport, const MemberRing& ring, const Slice& slice,
                    const ComposedOptions& options, RingCounts& counts);

  void note_sent(int peer) override;
  bool awaits_sent(int peer) const override { return columns_ && columns_->awaits_sent(peer); }
  void note_received(int peer) override;
  /// The oldest slice in the rack is complete; `advance` follows.
  void rack_done();
  void advance(Time now) override;
  bool ready() const override { return call_.complete(); }
  bool finished() const override { return ready(); }

 private:
  static constexpr std::size_t kDepth = 4;
  static constexpr std::size_t kSmallest = 8;  // of the largest segment: this part
  enum class Stage : std::uint8_t { kSumming, kSummed, kInRing, kHandedOut, kComplete };
  struct Segment {
    std::vector<Item> items;
    WireOp op;
    bool narrow;                    // it is one column
    std::size_t column;             // elements
    std::vector<std::int32_t> all;  // of all columns: what this rank contributes, in the end the result
    std::vector<std::int32_t> own;  // of the columns of which it is the agent
    Stage stage = Stage::kSumming;
  };

  bool in_rack() const { return ring_.rack().size() > 1; }
  std::optional<Item> next_item() const;
  std::size_t segment_items() const;
  void build(Time now);
  void start_in_rack(Segment& segment, Collective collective, Time now);
  void run_ring(Segment& segment, Time now);
  bool go_round(Segment& segment, Time now);
  void absorb(const Segment& segment);

  const MemberRing& ring_;
  const Slice slice_;
  const ComposedOptions& options_;
  RingCounts& counts_;
  Transport& transport_;
  Call call_;
  std::optional<Columns> columns_;  // of the segment in the ring
  std::size_t issued_ = 0;          // items
  std::deque<Segment> segments_;
  std::size_t handed_out_ = 0;                        // of `segments_`, from the first
  std::deque<Segment*> in_rack_;                      // what the rack works on
  std::vector<std::unique_ptr<Algorithm>> machines_;  // of the segment in the ring, by own column
  std::uint64_t rack_slices_ = 0;
};

}  // namespace railweave::ina
