// SPDX-License-Identifier: Apache-2.0
// How far every rank is, carried around the ring by beats.
#pragma once

#include <cstdint>
#include <vector>

#include "recovery/datagram.hpp"

namespace railweave::recovery {

/// Numbers only grow, so what comes late or twice changes nothing. With more than kWindow ranks a beat tells
/// of a window of them, and the next beat of the following ones.
class Progress {
 public:
  Progress(int rank, int world_size)
      : rank_(static_cast<std::size_t>(rank)), completed_(static_cast<std::size_t>(world_size)) {}

  void completed(std::uint32_t op);
  void hear(const Beat& beat);
  void tell(Beat& beat) const;
  /// All ranks have completed all calls before this one.
  std::uint32_t least() const { return least_; }

 private:
  void raise(std::size_t rank, std::uint32_t op);

  std::size_t rank_;
  std::vector<std::uint32_t> completed_;
  std::uint32_t least_ = 0;
};

}  // namespace railweave::recovery
