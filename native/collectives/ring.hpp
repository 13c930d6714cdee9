// SPDX-License-Identifier: Apache-2.0
// Ring allreduce: reduce-scatter, then allgather, each n-1 steps around the ring (Patarasuk and Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). Moves 2(n-1)/n of the slice
// per rank in each direction.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/algorithm.hpp"

namespace railweave {

/// The slice is cut into n blocks and each block into segments of about `segment_bytes`. A segment goes on to
/// the next rank as soon as it is reduced here, so that no rank waits for whole blocks, and `kWindow`
/// receives are posted ahead. `input` may be `output`; else `input` is left as it is.
class Ring final : public Algorithm {
 public:
  static constexpr std::size_t kWindow = 4;

  Ring(Transport& transport, const Slice& slice, std::size_t segment_bytes);

  void note_sent(int) override { step(sent_, 0); }
  bool awaits_sent(int) const override { return sent_ < send_posted_; }
  void note_received(int) override { step(received_, 1); }
  void advance(Time now) override;
  bool ready() const override { return reduced_ == messages_ && sent_ == messages_; }
  bool finished() const override { return ready(); }

 private:
  struct Range {
    std::size_t offset;  // elements
    std::size_t count;
  };

  std::size_t step_of(std::size_t message) const { return message / segments_; }
  bool gathers(std::size_t message) const { return step_of(message) + 1 >= ranks_; }
  Range range(std::size_t message, std::size_t hop) const;
  void step(std::size_t& cursor, std::size_t hop) const;
  void skip_empty(std::size_t& cursor, std::size_t hop) const;
  bool may_send() const;
  bool may_receive() const;
  std::byte* scratch(std::size_t message);
  void post_receive(Time now);
  void post_send(Time now);
  void take();

  Transport& transport_;
  const Slice slice_;
  const std::size_t ranks_;
  const std::size_t rank_;
  const std::size_t item_;
  std::size_t segments_;       // per block
  std::size_t segment_bytes_;  // of the longest segment
  std::size_t messages_;       // in each direction; message m belongs to step m / segments_
  // Cursors over the messages; all before the cursor are done. Empty messages are not sent: cursors jump over
  // them.
  std::size_t send_posted_ = 0;
  std::size_t sent_ = 0;
  std::size_t receive_posted_ = 0;
  std::size_t received_ = 0;
  std::size_t reduced_ = 0;  // received and, in the reduce-scatter, reduced
  std::vector<std::byte> scratch_;
};

}  // namespace railweave
