// SPDX-License-Identifier: Apache-2.0
// Allgather in ceil(log2 n) steps for any n. Before the step of distance d = 2^k, a rank has the d shards
// from its own on. In the step it gets d more from rank + d, or all that are missing. Source: Bruck et al.,
// "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997. Run
// backwards, it is a reduce-scatter: a rank sends rank + d its data for that rank's d shards. Both move
// (n-1)/n of the tensor, as a ring does, in fewer steps. But shards are copied, and a step's message is sent
// as a whole. The two in a row are an allreduce, whose shards are the n-th parts of the tensor.
#include <algorithm>
#include <cstring>

#include "collectives/reduce.hpp"
#include "collectives/stepwise.hpp"

namespace railweave {
namespace {

/// Performs the collective of the slice's call: kAllReduce, kAllGather or kReduceScatter.
class Bruck final : public Stepwise {
 public:
  Bruck(Transport& transport, const Slice& slice)
      : Stepwise(transport, slice),
        ranks_(static_cast<std::size_t>(transport.world_size())),
        rank_(static_cast<std::size_t>(transport.rank())),
        item_(item_size(slice.call.dtype)),
        shard_count_(is(Collective::kAllReduce) ? (slice.count + ranks_ - 1) / ranks_ : slice.count),
        shard_bytes_(shard_count_ * item_) {
    for (std::size_t distance = 1; distance < ranks_; distance *= 2) distances_.push_back(distance);
    if (!is(Collective::kAllGather)) reducing_steps_ = distances_.size();
    if (is(Collective::kAllReduce))
      distances_.insert(distances_.begin(), distances_.rbegin(), distances_.rend());
    if (is(Collective::kReduceScatter)) std::reverse(distances_.begin(), distances_.end());
    for (std::size_t step = 0; step < distances_.size(); ++step) {
      const auto up = static_cast<int>(rank_at(distances_[step])),
                 down = static_cast<int>(rank_at(ranks_ - distances_[step]));
      steps_.push_back(reduces(step) ? Step{.to = up, .from = down} : Step{.to = down, .from = up});
    }
    // Memory holds the n shards, then n - 1 received partial sums, then the shards that an allreduce gathers.
    // The last need another place than the first, which may still be leaving.
    if (reducing_steps_ > 0) gathered_ = 2 * ranks_ - 1;
    memory_.resize((gathered_ + (is(Collective::kReduceScatter) ? 0 : ranks_)) * shard_bytes_);
  }

 private:
  bool is(Collective collective) const { return slice_.call.collective == collective; }
  bool reduces(std::size_t step) const { return step < reducing_steps_; }
  /// Shards in memory are numbered from this rank's shard.
  std::byte* shard(std::size_t place) { return memory_.data() + place * shard_bytes_; }
  std::size_t bytes_of_step(std::size_t step) const {
    return std::min(distances_[step], ranks_ - distances_[step]) * shard_bytes_;
  }
  Bytes outgoing(std::size_t step) override {
    return {shard(reduces(step) ? distances_[step] : gathered_), bytes_of_step(step)};
  }
  MutableBytes incoming(std::size_t step) override {
    return {shard((reduces(step) ? ranks_ - 1 : gathered_) + distances_[step]), bytes_of_step(step)};
  }
  void load() override {
    if (is(Collective::kAllGather)) {
      std::memcpy(shard(0), slice_.input, shard_bytes_);
      return;
    }
    for (std::size_t place = 0; place < ranks_; ++place) {
      const Part at = part(place);
      std::memcpy(shard(place), slice_.input + at.offset, at.bytes);
    }
  }
  void end_step(std::size_t step) override {
    if (!reduces(step)) return;
    reduce(slice_.call.dtype, slice_.call.op, shard(0), incoming(step).data(), shard(0),
           bytes_of_step(step) / item_);
    if (step + 1 != reducing_steps_) return;
    finish(slice_.call.dtype, slice_.call.op, shard(0), shard_count_, slice_.world_size);
    if (is(Collective::kAllReduce)) std::memcpy(shard(gathered_), shard(0), shard_bytes_);
  }
  void store() override {
    if (is(Collective::kReduceScatter)) {
      std::memcpy(slice_.output, shard(0), shard_bytes_);
      return;
    }
    for (std::size_t place = 0; place < ranks_; ++place) {
      const Part at = part(place);
      std::memcpy(slice_.output + at.offset, shard(gathered_ + place), at.bytes);
    }
  }
  std::size_t rank_at(std::size_t place) const { return (rank_ + place) % ranks_; }

  /// Where a shard is in an input or output with all shards, in bytes. The last shards of an allreduce may be
  /// shorter than the others, or empty.
  struct Part {
    std::size_t offset;
    std::size_t bytes;
  };
  Part part(std::size_t place) const {
    if (!is(Collective::kAllReduce)) return {rank_at(place) * slice_.stride * item_, shard_bytes_};
    const std::size_t offset = std::min(bytes_, rank_at(place) * shard_bytes_);
    return {offset, std::min(shard_bytes_, bytes_ - offset)};
  }

  const std::size_t ranks_;
  const std::size_t rank_;
  const std::size_t item_;
  const std::size_t shard_count_;  // elements of a shard
  const std::size_t shard_bytes_;
  std::vector<std::size_t> distances_;  // by step
  std::size_t reducing_steps_ = 0;      // before the gathering ones
  std::size_t gathered_ = 0;            // the place in memory where gathering begins
};

}  // namespace

std::unique_ptr<Algorithm> make_bruck(Transport& transport, const Slice& slice) {
  return std::make_unique<Bruck>(transport, slice);
}

}  // namespace railweave
