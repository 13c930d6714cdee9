// SPDX-License-Identifier: Apache-2.0
// The all_reduce that tests whether a restarted rail can carry calls again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "rails/rail.hpp"

namespace railweave {

class Trial {
 public:
  static constexpr std::uint64_t kId = std::numeric_limits<std::uint64_t>::max();  // no call uses it
  static constexpr std::size_t kElements = 16 * 1024;                              // of int32

  Trial(int rank, int world_size) : rank_(rank), world_size_(world_size) {}

  /// Starts a new attempt. The slice uses memory of this object. The channel must be free of other slices.
  Slice slice() {
    input_.resize(kElements);
    output_.assign(kElements, -1);
    for (std::size_t i = 0; i < kElements; ++i) input_[i] = value(i, rank_);
    return {.id = kId,
            .call = {.op_index = 0,
                     .collective = Collective::kAllReduce,
                     .dtype = DType::kInt32,
                     .op = ReduceOp::kSum,
                     .root = 0,
                     .count = kElements},
            .input = reinterpret_cast<const std::byte*>(input_.data()),
            .output = reinterpret_cast<std::byte*>(output_.data()),
            .count = kElements,
            .stride = 0,
            .rank = rank_,
            .world_size = world_size_};
  }
  /// Whether the last attempt's result is right.
  bool passed() const {
    std::int64_t factor = 0;
    for (int rank = 0; rank < world_size_; ++rank) factor += value(1, rank);
    for (std::size_t i = 0; i < output_.size(); ++i) {
      if (output_[i] != static_cast<std::int32_t>(static_cast<std::int64_t>(i) * factor)) return false;
    }
    return output_.size() == kElements;
  }

 private:
  // Differs by rank and element, so that missing, doubled or displaced data gives a wrong sum. Cannot
  // overflow.
  static std::int32_t value(std::size_t element, int rank) {
    return static_cast<std::int32_t>(element) * (rank % 7 + 1);
  }

  const int rank_;
  const int world_size_;
  std::vector<std::int32_t> input_;
  std::vector<std::int32_t> output_;
};

}  // namespace railweave
