// SPDX-License-Identifier: Apache-2.0
// The all_reduce by which the ranks find out whether a rail that was restarted carries calls again.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "rails/rail.hpp"

namespace railweave {

class Trial {
 public:
  static constexpr std::uint64_t kId = std::numeric_limits<std::uint64_t>::max();  // no call's slice has it
  static constexpr std::size_t kElements = 16 * 1024;                              // of int32

  Trial(int rank, int world_size) : rank_(rank), world_size_(world_size) {}

  /// A fresh attempt; its memory stays here. No other rank may use the channel for anything else.
  Slice slice();
  /// Whether the last attempt's result is right.
  bool passed() const;

 private:
  const int rank_;
  const int world_size_;
  std::vector<std::int32_t> input_;
  std::vector<std::int32_t> output_;
};

}  // namespace railweave
