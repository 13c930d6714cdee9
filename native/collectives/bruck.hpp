// SPDX-License-Identifier: Apache-2.0
// Allgather in ceil(log2 n) steps for any n: before the step of distance d = 2^k a rank has the d shards from
// its own on, and gets as many more from rank + d (Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient
// algorithms for all-to-all communications in multiport message-passing systems", 1997). Run backwards it is
// a reduce-scatter: a rank hands rank + d what it has of that rank's d shards. Both move (n-1)/n of the
// tensor, as a ring does, in fewer steps; but shards are copied, and a step's message is sent whole.
#pragma once

#include "collectives/stepwise.hpp"

namespace railweave {

/// What the slice's call says: kAllGather or kReduceScatter.
class Bruck final : public Stepwise {
 public:
  Bruck(Transport& transport, const Slice& slice);

 private:
  /// Shards in memory are counted from this rank's own.
  std::byte* shard(std::size_t place) { return memory_.data() + place * bytes_; }
  std::size_t bytes_of_step(std::size_t step) const;
  Bytes outgoing(std::size_t step) override;
  MutableBytes incoming(std::size_t step) override;
  void load() override;
  void end_step(std::size_t step) override;
  void store() override;
  std::size_t rank_at(std::size_t place) const { return (rank_ + place) % ranks_; }

  const std::size_t ranks_;
  const std::size_t rank_;
  const bool gathers_;
  std::vector<std::size_t> distances_;  // by step
};

}  // namespace railweave
