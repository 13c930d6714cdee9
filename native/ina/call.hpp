// SPDX-License-Identifier: Apache-2.0
// One slice as a sequence of chunks: their order, their contents, and the place of their results.
//
// The sequence follows from the call and from results alone, so that it is the same on every rank:
//   int32; floats' MAX, MIN  data chunks in order
//   floats' SUM, AVG        exponents of segments 0…lead-1, then for every segment j the exponents of segment
//                           j + lead and the data chunks of segment j; at the end the class counts of those
//                           chunks whose results are flagged NONFINITE. An allreduce of so few values that
//                           one packet holds their exact lanes is that one chunk. One whose values are one
//                           chunk begins with its wide lanes, and ends with them unless some rank says
//                           OVERFLOW
// Sealed packets (seal.hpp) prove sums and nothing else, and only sums that do not wrap. So there
//   int32's SUM, AVG        a rank with values that n ranks might wrap sends zeros and OVERFLOW in their
//                           place; at the end, all send both halves of the values of those chunks
//   MAX, MIN                at the end a sum counts, for each value, the ranks whose own is the maximum. As
//   no
//                           rank takes less than its own for one, one such rank proves it
//   floats' SUM, AVG        data count the ranks whose own exponent is the agreed one, likewise
// A segment is as many data chunks as a packet has lanes. Data wait for their segment's exponents, class
// counts for all data.
//
// Switches sum, and everybody gets the sum; that serves the other collectives as well. An allgather and a
// broadcast sum 32-bit words of whatever type, to which only the one rank contributes that has them, and the
// others zeros. Of a reduce-scatter's data and class counts only the owner of the shard gets the results. Its
// own lanes stay here and join the result, so that each link carries the others' only, once.
//
// Chunks take the shards in turn, so that at any time all ranks have as much to send and to get; none holds
// parts of two. Where packets can be multicast (`spread`), a larger one is one chunk, READY: its
// result says that all ranks have begun the call, whose data then go as docs/design/multicast.md says.
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

/// What one chunk carries: `index` is a segment for exponents, one of the chunks with wide lanes, twice the
/// data chunk for its lower halves and one more for its upper ones, the number of a witness, else a data
/// chunk of the slice.
struct Item {
  Phase phase;
  std::uint32_t index;
};

/// Whether switches can carry it: of what reduces, float32, float16, bfloat16 and int32 with sum, avg, max
/// and min; of what only moves, everything.
bool carries(const CallDescription& call);
/// Elements of the tensor in a chunk.
std::size_t chunk_elements(const CallDescription& call, std::uint32_t lanes);
/// Chunks in all from which what only moves is multicast: READY costs a round trip more.
inline constexpr std::uint32_t kLeastSpread = 16;
/// Elements of a slice that each of several trees gets, by whole chunks; the last may get fewer.
std::size_t tree_elements(const Slice& slice, std::uint32_t lanes, std::size_t trees);
/// Whether a slice is multicast where packets can be.
bool spreads(const Slice& slice, std::uint32_t lanes);

/// Of a lane that holds a small maximum in a sealed packet, the lower bits are its tag.
inline constexpr std::uint32_t kMaximumTagBits = 14;

/// What READY says of a rank, and its result of all ranks.
struct Ready {
  std::uint32_t unfinished = 0;   // spread calls right before this one that are not done; the most
  std::uint32_t chunk_bytes = 0;  // payload of a SPREAD packet that the path allows; the least
};

struct CallOptions {
  std::uint32_t lanes;     // that hold data
  std::uint32_t lead = 0;  // how many segments the exponents are ahead of the data
  std::uint32_t wide = 0;  // sums of so many values begin with wide lanes
  bool multicast = false;  // whether the data of what only moves, and is not small, go as SPREAD packets
  bool sealed = false;     // whether packets are sealed
};

/// What a seal counts of the contributions to a chunk: ranks.
struct Counts {
  std::uint32_t agreeing = 0;     // whose own exponent is the agreed one
  std::uint32_t nonfinite = 0;    // that have NaN or Inf
  std::uint32_t overflowing = 0;  // that have values which the lanes do not hold

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

  /// The item that the group's next chunk must carry; nothing while that depends on results still missing, or
  /// when all are issued.
  std::optional<Item> next() const;
  /// Items of a phase that are not issued, as far as they are known.
  std::size_t left(Phase phase) const;
  /// All items are issued, and no result can add one.
  bool exhausted() const;
  /// A result is in place.
  bool begun() const { return absorbed_ > 0; }
  /// All results are in place.
  bool complete() const { return exhausted() && absorbed_ == issued_ && (!spread_ || placed_); }

  /// Its data go as SPREAD packets.
  bool spread() const { return spread_; }
  /// Of this rank, before READY is built.
  void set_ready(const Ready& ready) { ready_ = ready; }
  /// Of all, once READY's result is here.
  const Ready& ready() const { return ready_; }
  /// All data of a spread call are in place.
  bool placed() const { return placed_; }
  void place() { placed_ = true; }

  /// The task of the first spread call that this rank has begun behind this one; nothing if none.
  std::optional<std::uint64_t> followed_by() const { return followed_by_; }
  void follow(std::uint64_t task) { followed_by_ = task; }

  WireOp wire_op(Item item) const;
  /// Whether the lanes of its result come here: else it has none.
  bool keeps(Item item) const { return !scattered(item) || mine(chunk_of(item)); }
  /// Issues `item`, which is next(), or the first exponents or data left whose exponents are here: fills
  /// `lanes` and returns the flags to send with them. With kOwner they stay here: absorb takes what they and
  /// the result's lanes are together.
  std::uint8_t build(Item item, std::byte* lanes);
  /// How many lanes of an item are maxima of exponents, or of READY: at most 17 bits and a sign, which leave
  /// room for a tag where packets are sealed.
  std::uint32_t small_maxima(Item item) const;
  /// What the seal of an item that was built with these flags counts of this rank.
  Counts counts(Item item, std::uint8_t flags) const;
  /// Results of other items that this one was made from: a number that stands for them.
  std::uint64_t made_from(Item item) const;
  /// Takes the result of an item that was issued, once; without lanes if it is not kept. Of a sealed packet
  /// `counts` are the seal's. False: earlier results were wrong, as this one proves.
  bool absorb(Item item, std::uint8_t flags, const std::byte* lanes, const Counts& counts = {});
  /// Before the maxima of a data chunk are absorbed: where this rank's lanes hold them. `digest` stands for
  /// them, and all ranks must have the same.
  void note_maxima(Item item, const std::byte* own, const std::byte* maxima, std::uint64_t digest);
  /// How far fixed point may put a sum of this call from the exact one, as far as results have come; 0
  /// for what needs no fixed point. Before a mean divides.
  double error_bound() const;

 private:
  bool is(Collective collective) const { return slice_.call.collective == collective; }
  bool sums_floats() const;
  bool fixed_point() const { return sums_floats() && !exact_; }
  bool sums_integers() const;
  bool finds_maxima() const;
  /// Items may follow the data that nothing tells of before all data are here.
  bool may_add() const { return result_nonfinite_ || (sealed_ && (sums_integers() || finds_maxima())); }
  /// The results of all wide lanes are here, and hold the sums.
  bool wide_holds() const { return wides_ > 0 && wide_absorbed_ == wides_ && !overflow_; }
  std::uint32_t shard(std::uint32_t chunk) const { return chunk % shards_; }
  bool mine(std::uint32_t chunk) const { return shard(chunk) == static_cast<std::uint32_t>(slice_.rank); }
  /// The data chunk of an item.
  static std::uint32_t chunk_of(Item item) {
    return item.phase == Phase::kHalves ? item.index / 2 : item.index;
  }
  /// Its result goes to one rank only. All must see maxima that they are to witness.
  bool scattered(Item item) const {
    return is(Collective::kReduceScatter) && item.phase != Phase::kExponents && !(sealed_ && finds_maxima());
  }
  /// The results of a chunk are this rank's.
  bool wanted(std::uint32_t chunk) const { return !is(Collective::kReduceScatter) || mine(chunk); }
  /// A chunk's first value, counted in its shard, and how many it has. A value fills a lane.
  std::size_t first(std::uint32_t chunk) const { return std::size_t{chunk / shards_} * lanes_; }
  std::size_t chunk_size(std::uint32_t chunk) const;
  /// From the beginning of the slice, in bytes.
  std::size_t offset(std::uint32_t chunk, bool sharded) const;
  /// Whether this rank has the words of a chunk.
  bool contributes(std::uint32_t chunk) const;
  /// A chunk's values; halves as float32, in memory that the next call of `floats` reuses.
  const std::byte* input(std::uint32_t chunk);
  std::byte* output(std::uint32_t chunk) const;
  /// Of the last word of a shard only so many bytes are the caller's as there are.
  std::size_t word_bytes(std::uint32_t chunk) const;
  std::byte* floats() { return reinterpret_cast<std::byte*>(floats_.data()); }
  /// Where the results of a chunk go as float32 or int32; `put` completes it.
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
  bool half_;           // reduced as float32
  std::size_t length_;  // values of a shard
  std::uint32_t shards_;
  int largest_exponent_ = 0;  // biased; 0: none yet
  std::uint32_t chunks_;
  bool spread_;
  bool placed_ = false;
  std::optional<std::uint64_t> followed_by_;
  Ready ready_{};
  bool exact_;           // the only chunk holds exact lanes
  std::uint32_t wides_;  // chunks
  std::uint32_t segments_;
  std::uint32_t witness_bits_;    // of a count of ranks
  std::uint32_t witness_chunks_;  // of maxima that one witness is for
  std::uint32_t next_wide_ = 0;
  std::uint32_t next_segment_ = 0;
  std::uint32_t next_chunk_ = 0;
  std::uint32_t next_added_ = 0;
  std::uint32_t issued_ = 0;
  std::uint32_t absorbed_ = 0;
  std::uint32_t wide_absorbed_ = 0;
  std::uint32_t data_absorbed_ = 0;
  bool overflow_ = false;                // of wide lanes: this rank's, then some rank's
  bool input_nonfinite_ = false;         // this rank's input, as far as it has been scanned
  bool result_nonfinite_ = false;        // some rank's, as far as exponents have come
  std::vector<float> floats_;            // of one chunk, for halves
  std::vector<std::byte> wide_;          // wide lanes, or their results, as far as they have come
  std::vector<std::uint8_t> exponents_;  // per data chunk, 0 until its result is here
  std::vector<std::uint8_t> own_exponents_;
  std::vector<std::uint32_t> flagged_;  // chunks that need class counts, or halves
  std::vector<Item> added_;             // what follows the data, once all of them are absorbed
  std::map<std::uint32_t, std::vector<std::byte>> halves_;  // the first result of two, per chunk
  std::vector<std::int32_t> witnesses_;                     // lanes of all
  std::vector<std::uint64_t> witnessed_;                    // what stands for the maxima of each
  std::map<std::uint32_t, std::vector<std::uint8_t>>
      classes_;  // this rank's, saved before results overwrite them
};

}  // namespace railweave::ina
