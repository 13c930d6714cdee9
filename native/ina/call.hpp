// SPDX-License-Identifier: Apache-2.0
// One slice as a sequence of chunks: their order, their contents, and the place of their results.
//
// The sequence depends only on the call and on results, so it is the same on every rank.
//   int32; MAX, MIN of floats  Data chunks in order.
//   SUM, AVG of floats         Exponents of segments 0…lead-1. Then, for every segment j, the exponents of
//                              segment j + lead and the data chunks of segment j. At the end, class counts of
//                              the chunks whose results have NONFINITE.
// A segment has as many data chunks as a packet has lanes. Data wait for the exponents of their segment, and
// class counts wait for all data. An allreduce of few floats is a single chunk if one packet holds their
// exact lanes. Otherwise it begins with its wide lanes, and ends with them unless some rank says OVERFLOW.
// A seal (seal.hpp) proves only sums, and only sums that do not wrap. So sealed calls differ.
//   SUM, AVG of int32   A rank whose values could wrap in a sum of n ranks sends zeros and OVERFLOW instead.
//                       At the end, all ranks send both halves of the values of those chunks.
//   MAX, MIN            At the end, a sum counts the ranks whose own value is the maximum. One such rank
//                       proves it, because no rank accepts a maximum below its own value.
//   SUM, AVG of floats  Data count the ranks whose own exponent is the agreed one, for the same reason.
//
// Other collectives are sums, too. In an allgather and a broadcast, the rank that has a 32-bit word
// contributes it, and all others contribute zeros. In a reduce-scatter, only the owner of a shard gets the
// results of its data and class counts. The owner adds its own lanes to the result itself. So each link
// carries only the lanes of others, once.
//
// Consecutive chunks belong to different shards, so that all ranks send and receive equally much at any time.
// No chunk holds parts of two shards. Where packets can be multicast (`spread`), a large allgather or
// broadcast is one chunk, READY. Its result says that all ranks have begun the call. The data then go as
// docs/design/multicast.md says.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/bytes.hpp"
#include "core/slice.hpp"
#include "ina/packet.hpp"

namespace railweave::ina {

enum class Phase : std::uint8_t { kWide, kExponents, kData, kClasses, kReady, kHalves, kWitness };

/// The content of one chunk. `index` is the segment of exponents, or the number of a chunk with wide lanes,
/// or the number of a witness. For halves, it is twice the data chunk, plus 1 for the upper halves.
/// Otherwise, it is the data chunk.
struct Item {
  Phase phase;
  std::uint32_t index;
};

/// Whether switches can carry the call. They reduce float32, float16, bfloat16 and int32 with sum, avg, max
/// and min. They move all types.
bool carries(const CallDescription& call);
/// Elements of the tensor in a chunk.
std::size_t chunk_elements(const CallDescription& call, std::uint32_t lanes);
/// Allgathers and broadcasts of fewer chunks are not multicast, because READY costs one more round trip.
inline constexpr std::uint32_t kLeastSpread = 16;
/// Elements of a slice that each of several trees gets, in whole chunks. The last tree may get fewer.
std::size_t tree_elements(const Slice& slice, std::uint32_t lanes, std::size_t trees);
/// Whether a slice is multicast where packets can be.
bool spreads(const Slice& slice, std::uint32_t lanes);

/// In a sealed packet, a lane with a small maximum has its tag in this many lower bits.
inline constexpr std::uint32_t kMaximumTagBits = 14;

/// READY's numbers: one rank's in its contribution, those of all ranks in the result.
struct Ready {
  std::uint32_t unfinished = 0;   // unfinished spread calls right before this call; the result is the maximum
  std::uint32_t chunk_bytes = 0;  // payload of a SPREAD packet on this rank's path; the result is the minimum
};

struct CallOptions {
  std::uint32_t lanes;     // data lanes of a packet
  std::uint32_t lead = 0;  // segments that exponents are ahead of the data
  std::uint32_t wide = 0;  // sums of up to this many values begin with wide lanes
  bool multicast = false;  // whether large allgathers and broadcasts go as SPREAD packets
  bool sealed = false;     // whether packets are sealed
};

/// Numbers of ranks, as a seal counts them in the contributions to a chunk.
struct Counts {
  std::uint32_t agreeing = 0;     // whose own exponent is the agreed one
  std::uint32_t nonfinite = 0;    // that have NaN or Inf
  std::uint32_t overflowing = 0;  // that have values too large for the lanes

  Counts& operator+=(const Counts& others) {
    agreeing += others.agreeing;
    nonfinite += others.nonfinite;
    overflowing += others.overflowing;
    return *this;
  }
};

class Call {
 public:
  Call(const Slice& slice, const CallOptions& options);

  const Slice& slice() const { return slice_; }
  std::uint32_t mark() const { return mark_; }

  /// The item of the group's next chunk. Nothing if it depends on missing results, or if all are issued.
  std::optional<Item> next() const;
  /// The number of items of a phase that are not issued, as far as they are known.
  std::size_t left(Phase phase) const;
  /// All items are issued, and no result can add one.
  bool exhausted() const;
  /// A result is in place.
  bool begun() const { return absorbed_ > 0; }
  /// All results are in place.
  bool complete() const { return exhausted() && absorbed_ == issued_ && (!spread_ || placed_); }

  /// The data go as SPREAD packets.
  bool spread() const { return spread_; }
  /// Set this rank's numbers before READY is built.
  void set_ready(const Ready& ready) { ready_ = ready; }
  /// The numbers of all ranks, once READY's result is here.
  const Ready& ready() const { return ready_; }
  /// All data of a spread call are in place.
  bool placed() const { return placed_; }
  void place() { placed_ = true; }

  /// The task of the first spread call that this rank has begun after this call, if there is such a call.
  std::optional<std::uint64_t> followed_by() const { return followed_by_; }
  void follow(std::uint64_t task) { followed_by_ = task; }

  WireOp wire_op(Item item) const;
  /// Whether the item's result has lanes for this rank. Otherwise it has no lanes.
  bool keeps(Item item) const { return !scattered(item) || mine(chunk_of(item)); }
  /// Issues `item`: next(), or the first exponents left, or the first data left if their exponents are here.
  /// Fills `lanes` and returns the flags to send with them. With kOwner the lanes are not sent: the caller
  /// merges them with the result's lanes before `absorb`.
  std::uint8_t build(Item item, std::byte* lanes);
  /// How many lanes of an item are maxima of exponents or of READY. These have at most 17 bits and a sign, so
  /// that a tag fits in sealed packets.
  std::uint32_t small_maxima(Item item) const;
  /// This rank's contribution to the seal's counts, for an item that was built with these flags.
  Counts counts(Item item, std::uint8_t flags) const;
  /// A number that identifies the results from which this item was made.
  std::uint64_t made_from(Item item) const;
  /// Takes the result of an issued item, once; without lanes if it is not kept. `counts` are the seal's, if
  /// the packet was sealed. Returns false if this result proves that earlier results were wrong.
  bool absorb(Item item, std::uint8_t flags, const std::byte* lanes, const Counts& counts = {});
  /// Notes which of this rank's lanes equal the maxima of a data chunk. Called before the maxima are
  /// absorbed. `digest` is a hash of the maxima, which must be the same on all ranks.
  void note_maxima(Item item, const std::byte* own, const std::byte* maxima, std::uint64_t digest);
  /// The largest error that fixed point may cause in a sum of this call, as far as results have come; 0
  /// without fixed point. For a mean, this is the error before the division.
  double error_bound() const;

 private:
  bool is(Collective collective) const { return slice_.call.collective == collective; }
  bool sums_floats() const;
  bool fixed_point() const { return sums_floats() && !exact_; }
  bool sums_integers() const;
  bool finds_maxima() const;
  /// More items may follow the data. Only when all data are here is their number known.
  bool may_add() const { return result_nonfinite_ || (sealed_ && (sums_integers() || finds_maxima())); }
  /// The results of all wide lanes are here, and hold the sums.
  bool wide_holds() const { return wides_ > 0 && wide_absorbed_ == wides_ && !overflow_; }
  std::uint32_t shard(std::uint32_t chunk) const { return chunk % shards_; }
  bool mine(std::uint32_t chunk) const { return shard(chunk) == static_cast<std::uint32_t>(slice_.rank); }
  /// The data chunk of an item.
  static std::uint32_t chunk_of(Item item) {
    return item.phase == Phase::kHalves ? item.index / 2 : item.index;
  }
  /// The result goes to one rank only. All ranks must see the maxima that they witness.
  bool scattered(Item item) const {
    return is(Collective::kReduceScatter) && item.phase != Phase::kExponents && !(sealed_ && finds_maxima());
  }
  /// The results of a chunk are this rank's.
  bool wanted(std::uint32_t chunk) const { return !is(Collective::kReduceScatter) || mine(chunk); }
  /// The index of a chunk's first value in its shard, and the number of values. Each value fills one lane.
  std::size_t first(std::uint32_t chunk) const { return std::size_t{chunk / shards_} * lanes_; }
  std::size_t chunk_size(std::uint32_t chunk) const;
  /// A chunk's offset from the beginning of the slice, in bytes.
  std::size_t offset(std::uint32_t chunk, bool sharded) const;
  /// Whether this rank has the words of a chunk.
  bool contributes(std::uint32_t chunk) const;
  /// A chunk's values. 16-bit types are widened to float32 in `floats_`, which the next chunk reuses.
  const std::byte* input(std::uint32_t chunk);
  std::byte* output(std::uint32_t chunk) const;
  /// The chunk's bytes in the caller's memory. The last word of a shard may be incomplete.
  std::size_t word_bytes(std::uint32_t chunk) const;
  std::byte* floats() { return reinterpret_cast<std::byte*>(floats_.data()); }
  /// Memory for the results of a chunk as float32 or int32. `put` narrows them to 16-bit types.
  std::byte* results(std::uint32_t chunk);
  void store_maximum(std::byte* lanes, std::uint32_t lane, std::int32_t value) const;
  std::int32_t load_maximum(const std::byte* lanes, std::uint32_t lane) const;
  void put(std::uint32_t chunk);
  std::uint8_t build_wide(std::uint32_t index, std::byte* lanes);
  std::uint8_t build_exponents(std::uint32_t segment, std::byte* lanes);
  std::uint8_t build_data(std::uint32_t chunk, std::byte* lanes);
  void build_words(std::uint32_t chunk, std::byte* lanes);
  std::uint8_t build_fixed_point(std::uint32_t chunk, std::byte* lanes);
  std::uint8_t build_integers(std::uint32_t chunk, std::byte* lanes);
  void build_classes(std::uint32_t chunk, std::byte* lanes);
  void build_halves(Item item, std::byte* lanes);
  void build_witness(std::uint32_t index, std::byte* lanes);
  void build_ready(std::byte* lanes);
  void absorb_ready(const std::byte* lanes);
  std::uint8_t build_phase(Item item, std::byte* lanes);
  void absorb_classes(std::uint32_t chunk, const std::byte* lanes);
  void absorb_wide(std::uint32_t index, std::uint8_t flags, const std::byte* lanes);
  void absorb_exponents(std::uint32_t segment, std::uint8_t flags, const std::byte* lanes);
  bool absorb_data(std::uint32_t chunk, std::uint8_t flags, const std::byte* lanes, const Counts& counts);
  void absorb_halves(Item item, const std::byte* lanes);
  bool absorb_witness(std::uint32_t index, const std::byte* lanes) const;
  void add_items();
  void absorb_words(std::uint32_t chunk, const std::byte* lanes);
  void absorb_sums(std::uint32_t chunk, const std::byte* lanes);

  Slice slice_;
  std::uint32_t mark_;
  std::uint32_t lanes_;
  std::uint32_t lead_;
  bool sealed_;
  int headroom_;
  bool words_;          // not reduced: moved as 32-bit words
  bool half_;           // a 16-bit float type, reduced as float32
  std::size_t length_;  // values of a shard
  std::uint32_t shards_;
  int largest_exponent_ = 0;  // biased; 0: none yet
  std::uint32_t chunks_;
  bool spread_;
  bool placed_ = false;
  std::optional<std::uint64_t> followed_by_;
  Ready ready_{};
  bool exact_;           // the only chunk holds exact lanes
  std::uint32_t wides_;  // chunks with wide lanes
  std::uint32_t segments_;
  std::uint32_t witness_bits_;    // of a count of ranks
  std::uint32_t witness_chunks_;  // data chunks per witness
  std::uint32_t next_wide_ = 0;
  std::uint32_t next_segment_ = 0;
  std::uint32_t next_chunk_ = 0;
  std::uint32_t next_added_ = 0;
  std::uint32_t issued_ = 0;
  std::uint32_t absorbed_ = 0;
  std::uint32_t wide_absorbed_ = 0;
  std::uint32_t data_absorbed_ = 0;
  bool overflow_ = false;                // of wide lanes: on this rank, later on any rank
  bool input_nonfinite_ = false;         // this rank's input, as far as it has been scanned
  bool result_nonfinite_ = false;        // some rank's, as far as exponents have come
  std::vector<float> floats_;            // of one chunk, for 16-bit float types
  std::vector<std::byte> wide_;          // wide lanes, or their results, as far as they have come
  std::vector<std::uint8_t> exponents_;  // per data chunk, 0 until its result is here
  std::vector<std::uint8_t> own_exponents_;
  std::vector<std::uint32_t> flagged_;  // chunks that need class counts, or halves
  std::vector<Item> added_;             // items after the data, known once all data are absorbed
  std::map<std::uint32_t, std::vector<std::byte>> halves_;  // the first result of two, per chunk
  std::vector<std::int32_t> witnesses_;                     // the lanes of all witnesses
  std::vector<std::uint64_t> witnessed_;                    // digests of the maxima, per witness
  std::map<std::uint32_t, std::vector<std::uint8_t>>
      classes_;  // this rank's, saved before results overwrite them
};

}  // namespace railweave::ina
