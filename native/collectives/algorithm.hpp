// SPDX-License-Identifier: Apache-2.0
// One collective on one rail, as a state machine that posts messages and is told of their completion.
#pragma once

#include <memory>
#include <vector>

#include "collectives/transport.hpp"
#include "core/slice.hpp"

namespace railweave {

/// Does I/O only through its transport, and reads no clock. The owner notes completions as they come. Then
/// the owner calls `advance`, never from inside another `advance`.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual void note_sent(int peer) = 0;
  /// True if a send to this peer is posted and not yet noted as done.
  virtual bool awaits_sent(int peer) const = 0;
  virtual void note_received(int peer) = 0;
  /// Posts what can be posted and reduces what has come. The first call starts the collective.
  virtual void advance(Time now) = 0;
  /// True if the output holds the result, the slice's memory is the caller's again, and every message is
  /// posted.
  virtual bool ready() const = 0;
  /// True if the machine is ready and no message is in flight. Then the machine may be destroyed.
  virtual bool finished() const = 0;
};

/// A ring that reduces blocks of its input as they become available, in the order of its steps: block `rank`,
/// then `rank` - 1, and so on, modulo the number of blocks.
class BlockRing : public Algorithm {
 public:
  /// Says that `blocks` blocks of the input are available. The owner calls `advance` afterwards.
  virtual void provide(std::size_t blocks) = 0;
  /// Returns how many blocks of the output are complete: `rank` + 1, then `rank`, and so on, wrapping around.
  virtual std::size_t complete() const = 0;
};

// The transport outlives the machine. Bruck's algorithm and the ring perform the collective of `slice.call`.
std::unique_ptr<Algorithm> make_binomial(Transport& transport, const Slice& slice);
std::unique_ptr<Algorithm> make_bruck(Transport& transport, const Slice& slice);
std::unique_ptr<Algorithm> make_chain(Transport& transport, const Slice& slice, std::size_t segment_bytes);
std::unique_ptr<Algorithm> make_recursive_doubling(Transport& transport, const Slice& slice);
std::unique_ptr<Algorithm> make_ring(Transport& transport, const Slice& slice, std::size_t segment_bytes);
/// For an allreduce, with one message per block. The input's first block is there before the first `advance`.
std::unique_ptr<BlockRing> make_block_ring(Transport& transport, const Slice& slice);

/// Returns the ranks that exchange messages with `rank` in recursive doubling; some are in it more than once.
std::vector<int> doubling_partners(int rank, int ranks);

}  // namespace railweave
