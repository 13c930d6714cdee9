// SPDX-License-Identifier: Apache-2.0
#include "collectives/bruck.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/reduce.hpp"

namespace railweave {

Bruck::Bruck(Transport& transport, const Slice& slice)
    : Stepwise(transport, slice),
      ranks_(static_cast<std::size_t>(transport.world_size())),
      rank_(static_cast<std::size_t>(transport.rank())),
      gathers_(slice.call.collective == Collective::kAllGather) {
  for (std::size_t distance = 1; distance < ranks_; distance *= 2) distances_.push_back(distance);
  if (!gathers_) std::reverse(distances_.begin(), distances_.end());
  for (const std::size_t distance : distances_) {
    const auto up = static_cast<int>(rank_at(distance)), down = static_cast<int>(rank_at(ranks_ - distance));
    steps_.push_back(gathers_ ? Step{.to = down, .from = up} : Step{.to = up, .from = down});
  }
  // A reduce-scatter receives behind the shards: in all its steps n - 1 partial sums.
  memory_.resize((gathers_ ? ranks_ : 2 * ranks_ - 1) * bytes_);
}

std::size_t Bruck::bytes_of_step(std::size_t step) const {
  return std::min(distances_[step], ranks_ - distances_[step]) * bytes_;
}

Bytes Bruck::outgoing(std::size_t step) {
  return {shard(gathers_ ? 0 : distances_[step]), bytes_of_step(step)};
}

MutableBytes Bruck::incoming(std::size_t step) {
  const std::size_t distance = distances_[step];
  return {shard(gathers_ ? distance : ranks_ + distance - 1), bytes_of_step(step)};
}

void Bruck::load() {
  if (gathers_) {
    std::memcpy(shard(0), slice_.input, bytes_);
    return;
  }
  const std::size_t stride = slice_.stride * item_size(slice_.call.dtype);
  for (std::size_t place = 0; place < ranks_; ++place)
    std::memcpy(shard(place), slice_.input + rank_at(place) * stride, bytes_);
}

void Bruck::end_step(std::size_t step) {
  if (gathers_) return;
  const std::size_t items = bytes_of_step(step) / item_size(slice_.call.dtype);
  reduce(slice_.call.dtype, slice_.call.op, shard(0), incoming(step).data(), shard(0), items);
}

void Bruck::store() {
  if (!gathers_) {
    std::memcpy(slice_.output, shard(0), bytes_);
    finish(slice_.call.dtype, slice_.call.op, slice_.output, slice_.count, slice_.world_size);
    return;
  }
  const std::size_t stride = slice_.stride * item_size(slice_.call.dtype);
  for (std::size_t place = 0; place < ranks_; ++place)
    std::memcpy(slice_.output + rank_at(place) * stride, shard(place), bytes_);
}

}  // namespace railweave
