// SPDX-License-Identifier: Apache-2.0
// Which algorithm carries a slice: few steps for small ones, few bytes and many segments for large ones.
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/algorithm.hpp"

namespace railweave {

struct AlgorithmOptions {
  std::uint64_t rate_bps = 0;  // of the link; 0: unknown or unshaped
  // By default computed: the sizes of tensors, in bytes, up to which
  std::optional<std::size_t> small_bytes = {};  // they go in few steps,
  std::optional<std::size_t> bruck_bytes = {};  // and larger ones are allreduced by Bruck's algorithm
  // Most that is forwarded at a time. With its header it fits into one super-packet of TCP; and into two of
  // RDMA, whose first packet is longer than the others and whose last must not be.
  std::size_t segment_bytes = 63 * 1024 - 16;
};

enum class Method { kRecursiveDoubling, kBruck, kRing, kBinomial, kChain };

/// The quickest one for a tensor of `bytes`. An allreduce takes recursive doubling, then Bruck's
/// reduce-scatter and allgather, then the ring; these two take Bruck's algorithm, then the ring; a broadcast
/// a binomial tree, then a chain.
Method choose_method(Collective collective, std::size_t bytes, int ranks, const AlgorithmOptions& options);

/// The ranks with which the algorithms above have this one exchange messages, whatever the call, in order: as
/// many as the logarithm of their number, about twice. Whatever one rank is lost, the others stay connected.
std::vector<int> neighbours(int rank, int ranks);

/// All ranks choose alike, given the same options.
std::unique_ptr<Algorithm> choose_algorithm(Transport& transport, const Slice& slice,
                                            const AlgorithmOptions& options);

}  // namespace railweave
