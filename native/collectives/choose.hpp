// SPDX-License-Identifier: Apache-2.0
// Which algorithm carries a slice: few steps for small ones, each byte once over each link for large ones.
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/algorithm.hpp"

namespace railweave {

struct AlgorithmOptions {
  std::uint64_t rate_bps = 0;  // of the link; 0: unknown or unshaped
  std::optional<std::size_t> small_bytes =
      {};                                 // tensors up to this size go in few steps; by default computed
  std::size_t segment_bytes = 64 * 1024;  // most that is forwarded at a time
};

/// The size of the tensor, in bytes, up to which few steps are quicker: recursive doubling than the ring for
/// an allreduce, a binomial tree than a chain for a broadcast, Bruck's algorithm than the ring for the
/// others.
std::size_t few_steps_limit(Collective collective, int ranks, std::uint64_t rate_bps);

/// The ranks with which the algorithms above have this one exchange messages, whatever the call, in order: as
/// many as the logarithm of their number, about twice. Whatever one rank is lost, the others stay connected.
std::vector<int> neighbours(int rank, int ranks);

/// All ranks choose alike, given the same options.
std::unique_ptr<Algorithm> choose_algorithm(Transport& transport, const Slice& slice,
                                            const AlgorithmOptions& options);

}  // namespace railweave
