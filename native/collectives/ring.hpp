// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and allgather, each n-1 steps around the ring, and allreduce as the one after the other
// (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). Each
// phase moves (n-1)/n of the tensor per rank in each direction.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/algorithm.hpp"

namespace railweave {

/// The tensor consists of n blocks: the shards of a reduce-scatter or allgather, the n-th parts of what is
/// allreduced. A block is cut into segments of about `segment_bytes`; one goes on to the next rank as soon as
/// it is reduced here, so that no rank waits for whole blocks, and `kWindow` receives are posted ahead.
///
/// Partial sums stand in the output: an allreduce's in their block, a reduce-scatter's, of whichever block,
/// in the shard that is this rank's at last. The input is left as it is unless it is the output (an
/// allreduce), or its own shard is the output (a reduce-scatter).
class Ring final : public Algorithm {
 public:
  static constexpr std::size_t kWindow = 4;

  /// What the slice's call says: kAllReduce, kReduceScatter or kAllGather.
  Ring(Transport& transport, const Slice& slice, std::size_t segment_bytes);

  void note_sent(int) override { step(sent_, 0); }
  bool awaits_sent(int) const override { return sent_ < send_posted_; }
  void note_received(int) override { step(received_, 1); }
  void advance(Time now) override;
  bool ready() const override { return reduced_ == messages_ && sent_ == messages_; }
  bool finished() const override { return ready(); }

 private:
  /// Where a segment is, in elements. An input or output that is one shard has it at the same place whatever
  /// the block.
  struct Range {
    std::size_t input;
    std::size_t output;
    std::size_t count;
  };

  bool is(Collective collective) const { return slice_.call.collective == collective; }
  std::size_t step_of(std::size_t message) const { return message / segments_; }
  bool gathers(std::size_t message) const { return step_of(message) >= reducing_steps_; }
  Range range(std::size_t message, std::size_t hop) const;
  void step(std::size_t& cursor, std::size_t hop) const;
  void skip_empty(std::size_t& cursor, std::size_t hop) const;
  bool may_send() const;
  bool may_receive() const;
  bool may_take() const;
  std::byte* scratch(std::size_t message);
  void copy_own_shard();
  void post_receive(Time now);
  void post_send(Time now);
  void take();

  Transport& transport_;
  const Slice slice_;
  const std::size_t ranks_;
  const std::size_t rank_;
  const std::size_t item_;
  const std::size_t reducing_steps_;  // n-1, or none; gathering steps follow, or none
  std::size_t segments_;              // per block
  std::size_t segment_bytes_;         // of the longest segment
  std::size_t messages_;              // in each direction; message m belongs to step m / segments_
  // Cursors over the messages; all before the cursor are done. Empty messages are not sent: cursors jump over
  // them.
  std::size_t send_posted_ = 0;
  std::size_t sent_ = 0;
  std::size_t receive_posted_ = 0;
  std::size_t received_ = 0;
  std::size_t reduced_ = 0;  // received and, while that is its phase, reduced
  std::size_t copied_ = 0;   // segments of this rank's shard that an allgather has in its output
  std::vector<std::byte> scratch_;
  // This rank's shard of the input by segment, where partial sums overwrite it: from then until its turn.
  std::vector<std::vector<std::byte>> own_;
};

}  // namespace railweave
