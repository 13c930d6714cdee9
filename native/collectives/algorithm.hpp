// SPDX-License-Identifier: Apache-2.0
// One collective on one rail, as a machine that posts messages and is told of their completion.
#pragma once

#include <memory>
#include <vector>

#include "collectives/transport.hpp"
#include "core/slice.hpp"

namespace railweave {

/// Does no I/O of its own and reads no clock. The owner notes completions as they come and then calls
/// `advance`, never from inside another `advance`.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual void note_sent(int peer) = 0;
  /// A send to this peer has been posted and is not noted as done.
  virtual bool awaits_sent(int peer) const = 0;
  virtual void note_received(int peer) = 0;
  /// Posts what can be posted and reduces what has come. The first call starts the collective.
  virtual void advance(Time now) = 0;
  /// The output holds the result, the slice's memory is the caller's again, and every message has been
  /// posted.
  virtual bool ready() const = 0;
  /// Ready, and no message is on its way any more: the machine may go.
  virtual bool finished() const = 0;
};

/// A ring that reduces blocks of its input as they come, which is in the order of its steps: first block
/// `rank`, then downwards, and round.
class BlockRing : public Algorithm {
 public:
  /// So many blocks of the input are there. `advance` follows.
  virtual void provide(std::size_t blocks) = 0;
  /// How many blocks of the output are complete: first block `rank` + 1, then downwards, and round.
  virtual std::size_t complete() const = 0;
};

// The transport outlives the machine. A ring or Bruck's algorithm does what the slice's call says.
std::unique_ptr<Algorithm> make_binomial(Transport& transport, const Slice& slice);
std::unique_ptr<Algorithm> make_bruck(Transport& transport, const Slice& slice);
std::unique_ptr<Algorithm> make_chain(Transport& transport, const Slice& slice, std::size_t segment_bytes);
std::unique_ptr<Algorithm> make_recursive_doubling(Transport& transport, const Slice& slice);
std::unique_ptr<Algorithm> make_ring(Transport& transport, const Slice& slice, std::size_t segment_bytes);
/// Of an allreduce, a message per block. Its first block is provided before the first `advance`.
std::unique_ptr<BlockRing> make_block_ring(Transport& transport, const Slice& slice);

/// With whom a rank exchanges messages in recursive doubling; some more than once.
std::vector<int> doubling_partners(int rank, int ranks);

}  // namespace railweave
