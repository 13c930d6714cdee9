// SPDX-License-Identifier: Apache-2.0
// Choice of a slice's algorithm: few steps for small slices, few bytes and many segments for large slices.
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/algorithm.hpp"

namespace railweave {

struct AlgorithmOptions {
  std::uint64_t rate_bps = 0;  // of the link; 0: unknown or unshaped
  // Largest sizes of a tensor, in bytes; computed if not given.
  std::optional<std::size_t> small_bytes = {};  // for the algorithms with few steps
  std::optional<std::size_t> bruck_bytes = {};  // for an allreduce by Bruck's algorithm
  // Most bytes that are forwarded at a time. With its header, a segment fits into one super-packet of TCP and
  // two of RDMA. With RDMA, the first packet is longer than the others, and the last must not be longer.
  std::size_t segment_bytes = 63 * 1024 - 16;
};

enum class Method { kRecursiveDoubling, kBruck, kRing, kBinomial, kChain };

/// Returns the fastest method for a tensor of `bytes`. From small to large, an allreduce takes recursive
/// doubling, Bruck's reduce-scatter and allgather, or the ring. A reduce-scatter or an allgather takes
/// Bruck's algorithm or the ring. A broadcast takes a binomial tree or a chain.
Method choose_method(Collective collective, std::size_t bytes, int ranks, const AlgorithmOptions& options);

/// Returns the ranks that may exchange messages with `rank` in any of these algorithms, in order: about twice
/// the logarithm of `ranks`. If one rank is lost, the others stay connected.
std::vector<int> neighbours(int rank, int ranks);

/// Ranks with the same options choose the same algorithm.
std::unique_ptr<Algorithm> choose_algorithm(Transport& transport, const Slice& slice,
                                            const AlgorithmOptions& options);

}  // namespace railweave
