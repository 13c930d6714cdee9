// SPDX-License-Identifier: Apache-2.0
// Allgather in ceil(log2 n) steps for any n: before the step of distance d = 2^k a rank has the d shards from
// its own on, and gets as many more from rank + d (Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient
// algorithms for all-to-all communications in multiport message-passing systems", 1997). Run backwards it is
// a reduce-scatter: a rank hands rank + d what it has of that rank's d shards. Both move (n-1)/n of the
// tensor, as a ring does, in fewer steps; but shards are copied, and a step's message is sent whole.
#include <algorithm>
#include <cstring>

#include "collectives/reduce.hpp"
#include "collectives/stepwise.hpp"

namespace railweave {
namespace {

/// What the slice's call says: kAllGather or kReduceScatter.
class Bruck final : public Stepwise {
 public:
  Bruck(Transport& transport, const Slice& slice)
      : Stepwise(transport, slice),
        ranks_(static_cast<std::size_t>(transport.world_size())),
        rank_(static_cast<std::size_t>(transport.rank())),
        gathers_(slice.call.collective == Collective::kAllGather) {
    for (std::size_t distance = 1; distance < ranks_; distance *= 2) distances_.push_back(distance);
    if (!gathers_) std::reverse(distances_.begin(), distances_.end());
    for (const std::size_t distance : distances_) {
      const auto up = static_cast<int>(rank_at(distance)),
                 down = static_cast<int>(rank_at(ranks_ - distance));
      steps_.push_back(gathers_ ? Step{.to = down, .from = up} : Step{.to = up, .from = down});
    }
    // A reduce-scatter receives behind the shards: in all its steps n - 1 partial sums.
    memory_.resize((gathers_ ? ranks_ : 2 * ranks_ - 1) * bytes_);
  }

 private:
  /// Shards in memory are counted from this rank's own.
  std::byte* shard(std::size_t place) { return memory_.data() + place * bytes_; }
  std::size_t bytes_of_step(std::size_t step) const {
    return std::min(distances_[step], ranks_ - distances_[step]) * bytes_;
  }
  Bytes outgoing(std::size_t step) override {
    return {shard(gathers_ ? 0 : distances_[step]), bytes_of_step(step)};
  }
  MutableBytes incoming(std::size_t step) override {
    const std::size_t distance = distances_[step];
    return {shard(gathers_ ? distance : ranks_ + distance - 1), bytes_of_step(step)};
  }
  void load() override {
    if (gathers_) {
      std::memcpy(shard(0), slice_.input, bytes_);
      return;
    }
    const std::size_t stride = slice_.stride * item_size(slice_.call.dtype);
    for (std::size_t place = 0; place < ranks_; ++place)
      std::memcpy(shard(place), slice_.input + rank_at(place) * stride, bytes_);
  }
  void end_step(std::size_t step) override {
    if (gathers_) return;
    const std::size_t items = bytes_of_step(step) / item_size(slice_.call.dtype);
    reduce(slice_.call.dtype, slice_.call.op, shard(0), incoming(step).data(), shard(0), items);
  }
  void store() override {
    if (!gathers_) {
      std::memcpy(slice_.output, shard(0), bytes_);
      finish(slice_.call.dtype, slice_.call.op, slice_.output, slice_.count, slice_.world_size);
      return;
    }
    const std::size_t stride = slice_.stride * item_size(slice_.call.dtype);
    for (std::size_t place = 0; place < ranks_; ++place)
      std::memcpy(slice_.output + rank_at(place) * stride, shard(place), bytes_);
  }
  std::size_t rank_at(std::size_t place) const { return (rank_ + place) % ranks_; }

  const std::size_t ranks_;
  const std::size_t rank_;
  const bool gathers_;
  std::vector<std::size_t> distances_;  // by step
};

}  // namespace

std::unique_ptr<Algorithm> make_bruck(Transport& transport, const Slice& slice) {
  return std::make_unique<Bruck>(transport, slice);
}

}  // namespace railweave
