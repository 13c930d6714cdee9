// SPDX-License-Identifier: Apache-2.0
#include "agent/trial.hpp"

#include <cstddef>

namespace railweave {
namespace {

// Differs by rank and element, so that what is missing, doubled or displaced shows. Cannot overflow.
std::int32_t value(std::size_t element, int rank) {
  return static_cast<std::int32_t>(element) * (rank % 7 + 1);
}

}  // namespace

Slice Trial::slice() {
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

bool Trial::passed() const {
  std::int64_t factor = 0;
  for (int rank = 0; rank < world_size_; ++rank) factor += value(1, rank);
  for (std::size_t i = 0; i < output_.size(); ++i) {
    if (output_[i] != static_cast<std::int32_t>(static_cast<std::int64_t>(i) * factor)) return false;
  }
  return output_.size() == kElements;
}

}  // namespace railweave
