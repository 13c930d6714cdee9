// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and allgather, each n-1 steps around the ring, and allreduce as the one after the other
// (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). Each
// phase moves (n-1)/n of the tensor per rank in each direction.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/reduce.hpp"

namespace railweave {
namespace {

/// The tensor consists of n blocks: the shards of a reduce-scatter or allgather, or the n-th parts of an
/// allreduce. A block is cut into segments of about `segment_bytes`. A segment goes on to the next rank as
/// soon as it is reduced here, so that no rank waits for whole blocks. `kWindow` receives are posted ahead.
///
/// Partial sums are stored in the output. An allreduce stores them in their block. A reduce-scatter stores
/// those of every block in its only shard. The input does not change, unless it is the output (an allreduce)
/// or its shard of this rank is the output (a reduce-scatter).
class Ring final : public BlockRing {
 public:
  static constexpr std::size_t kWindow = 4;

  /// Performs the collective of the slice's call: kAllReduce, kReduceScatter or kAllGather. `provided` blocks
  /// of the input are available.
  Ring(Transport& transport, const Slice& slice, std::size_t segment_bytes, std::size_t provided)
      : transport_(transport),
        slice_(slice),
        ranks_(static_cast<std::size_t>(transport.world_size())),
        rank_(static_cast<std::size_t>(transport.rank())),
        item_(item_size(slice.call.dtype)),
        reducing_steps_(is(Collective::kAllGather) ? 0 : ranks_ - 1),
        provided_(provided) {
    const std::size_t block = is(Collective::kAllReduce) ? (slice.count + ranks_ - 1) / ranks_ : slice.count;
    const std::size_t segment = std::max<std::size_t>(1, segment_bytes / item_);
    const std::size_t gathering_steps = is(Collective::kReduceScatter) ? 0 : ranks_ - 1;
    segments_ = (block + segment - 1) / segment;
    segment_bytes_ = (block + segments_ - 1) / segments_ * item_;
    messages_ = (reducing_steps_ + gathering_steps) * segments_;
    if (reducing_steps_ > 0) scratch_.resize(kWindow * segment_bytes_);
    for (std::size_t* cursor : {&send_posted_, &sent_}) skip_empty(*cursor, 0);
    for (std::size_t* cursor : {&receive_posted_, &received_, &reduced_}) skip_empty(*cursor, 1);
    const bool in_place = slice_.input + rank_ * slice_.stride * item_ == slice_.output;
    if (is(Collective::kReduceScatter) && in_place && reducing_steps_ > 1) own_.resize(segments_);
  }

  void note_sent(int) override { step(sent_, 0); }
  bool awaits_sent(int) const override { return sent_ < send_posted_; }
  void note_received(int) override { step(received_, 1); }
  void advance(Time now) override {
    for (bool moved = true; moved;) {
      moved = false;
      for (; may_receive(); moved = true) post_receive(now);
      for (; may_take(); moved = true) take();
      for (; may_send(); moved = true) post_send(now);
    }
    copy_own_shard();
  }
  bool ready() const override { return reduced_ == messages_ && sent_ == messages_; }
  bool finished() const override { return ready(); }
  void provide(std::size_t blocks) override { provided_ = blocks; }
  std::size_t complete() const override {
    const std::size_t steps = step_of(reduced_);
    return steps < reducing_steps_ ? 0 : steps - reducing_steps_ + 1;
  }

 private:
  /// Where a segment is, in elements. In an input or output of only one shard, the place is the same for
  /// every block.
  struct Range {
    std::size_t input;
    std::size_t output;
    std::size_t count;
  };

  bool is(Collective collective) const { return slice_.call.collective == collective; }
  std::size_t step_of(std::size_t message) const { return message / segments_; }
  bool gathers(std::size_t message) const { return step_of(message) >= reducing_steps_; }
  // In step s a rank sends block (rank - s) and receives block (rank - s - 1). `hop` is 0 for a sent block, 1
  // for a received block. Both phases of an allreduce do this: after n-1 steps block (rank + 1) is complete
  // here, and goes round again. A reduce-scatter is one block behind, so that a rank ends with its own block.
  Range range(std::size_t message, std::size_t hop) const {
    const std::size_t behind = hop + (is(Collective::kReduceScatter) ? 1 : 0);
    const std::size_t block = (rank_ + 2 * ranks_ - step_of(message) - behind) % ranks_;
    const bool sharded = is_sharded(slice_.call.collective);
    const std::size_t begin = sharded ? block * slice_.stride : slice_.count * block / ranks_;
    const std::size_t length = sharded ? slice_.count : slice_.count * (block + 1) / ranks_ - begin;
    const std::size_t segment = message % segments_;
    const std::size_t first = length * segment / segments_;
    return {.input = first + (is(Collective::kAllGather) ? 0 : begin),
            .output = first + (is(Collective::kReduceScatter) ? 0 : begin),
            .count = length * (segment + 1) / segments_ - first};
  }
  void step(std::size_t& cursor, std::size_t hop) const {
    ++cursor;
    skip_empty(cursor, hop);
  }
  void skip_empty(std::size_t& cursor, std::size_t hop) const {
    while (cursor < messages_ && range(cursor, hop).count == 0) ++cursor;
  }
  // A step sends the block that the previous step has received.
  bool may_send() const {
    return send_posted_ < messages_ && (send_posted_ < segments_ || reduced_ > send_posted_ - segments_);
  }
  // An allreduce gathers into the place from which its reduce-scatter has sent, n-1 steps before.
  bool may_receive() const {
    if (receive_posted_ >= messages_ || receive_posted_ >= reduced_ + kWindow) return false;
    if (!is(Collective::kAllReduce) || !gathers(receive_posted_)) return true;
    return sent_ > receive_posted_ - reducing_steps_ * segments_;
  }
  // A reduce-scatter stores a partial sum where the previous step's sum may still be leaving, so it waits for
  // that send. This is no deadlock: the slowest rank's message is always awaited by a posted receive.
  bool may_take() const {
    if (reduced_ >= received_) return false;
    if (!gathers(reduced_) && step_of(reduced_) + 2 > provided_) return false;
    return !is(Collective::kReduceScatter) || reduced_ < segments_ || sent_ > reduced_;
  }
  std::byte* scratch(std::size_t message) { return scratch_.data() + message % kWindow * segment_bytes_; }
  // Copies segments as they are sent: a copy of a large shard at once would delay everything else.
  void copy_own_shard() {
    if (!is(Collective::kAllGather) || slice_.input == slice_.output + rank_ * slice_.stride * item_) return;
    for (; copied_ < std::min(sent_, segments_); ++copied_) {
      const Range at = range(copied_, 0);
      std::memcpy(slice_.output + at.output * item_, slice_.input + at.input * item_, at.count * item_);
    }
  }
  void post_receive(Time now) {
    const std::size_t message = receive_posted_;
    const Range at = range(message, 1);
    std::byte* into = gathers(message) ? slice_.output + at.output * item_ : scratch(message);
    step(receive_posted_, 1);
    transport_.post_receive(static_cast<int>((rank_ + ranks_ - 1) % ranks_), {into, at.count * item_}, now);
  }
  void post_send(Time now) {
    const std::size_t message = send_posted_;
    const Range at = range(message, 0);
    const std::byte* from =
        message < segments_ ? slice_.input + at.input * item_ : slice_.output + at.output * item_;
    step(send_posted_, 0);
    transport_.post_send(static_cast<int>((rank_ + 1) % ranks_), {from, at.count * item_}, now);
  }
  void take() {
    const std::size_t message = reduced_;
    step(reduced_, 1);
    if (gathers(message)) return;
    const Range at = range(message, 1);
    const bool complete = step_of(message) + 1 == reducing_steps_;
    std::byte* into = slice_.output + at.output * item_;
    const std::byte* own = slice_.input + at.input * item_;
    std::vector<std::byte> kept;
    if (!own_.empty()) {
      std::vector<std::byte>& segment = own_[message % segments_];
      if (message < segments_) segment.assign(into, into + at.count * item_);
      if (complete) own = (kept = std::move(segment)).data();
    }
    reduce(slice_.call.dtype, slice_.call.op, into, scratch(message), own, at.count);
    if (complete) finish(slice_.call.dtype, slice_.call.op, into, at.count, slice_.world_size);
  }

  Transport& transport_;
  const Slice slice_;
  const std::size_t ranks_;
  const std::size_t rank_;
  const std::size_t item_;
  const std::size_t reducing_steps_;  // n-1 or 0; then n-1 or 0 gathering steps follow
  std::size_t provided_;              // blocks of the input that are available
  std::size_t segments_;              // per block
  std::size_t segment_bytes_;         // of the longest segment
  std::size_t messages_;              // in each direction; message m belongs to step m / segments_
  // Cursors over the messages: all messages before a cursor are done. Cursors skip empty messages, which are
  // not sent.
  std::size_t send_posted_ = 0;
  std::size_t sent_ = 0;
  std::size_t receive_posted_ = 0;
  std::size_t received_ = 0;
  std::size_t reduced_ = 0;  // received and, in the reducing phase, reduced
  std::size_t copied_ = 0;   // segments of this rank's shard that an allgather has copied
  std::vector<std::byte> scratch_;
  // Copies of this rank's input shard, by segment, if partial sums overwrite it. Kept until its last step.
  std::vector<std::vector<std::byte>> own_;
};

}  // namespace

std::unique_ptr<Algorithm> make_ring(Transport& transport, const Slice& slice, std::size_t segment_bytes) {
  return std::make_unique<Ring>(transport, slice, segment_bytes,
                                static_cast<std::size_t>(transport.world_size()));
}

std::unique_ptr<BlockRing> make_block_ring(Transport& transport, const Slice& slice) {
  return std::make_unique<Ring>(transport, slice, slice.count * item_size(slice.call.dtype), 1);
}

}  // namespace railweave
