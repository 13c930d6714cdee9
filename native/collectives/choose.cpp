// SPDX-License-Identifier: Apache-2.0
#include "collectives/choose.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace railweave {
namespace {

constexpr double kStepSeconds =
    25e-6;  // time of a message between two ranks, without its bytes; measured over veth
constexpr double kUnshapedBytesPerS = 1e9;  // of a ring, measured over veth
constexpr double kWholeMessages = 0.04;  // of the bytes' time; measured over veth, 4 and 8 hosts, 50 Mbit/s
// The largest size that was measured. It also bounds the memory of the steps.
constexpr std::size_t kMostSmallBytes = 64 * 1024;
constexpr std::size_t kLeastSegmentBytes = 4096;

double bytes_per_s(std::uint64_t rate_bps) {
  return rate_bps > 0 ? static_cast<double>(rate_bps) / 8 : kUnshapedBytesPerS;
}

// A ring's two halves take 2(n-1) (a + s/(n b)). Bruck's algorithms take 2 log2 n a + 2(n-1)/n s/b, and more
// because a message is only forwarded as a whole (kWholeMessages). Returns the s at which the times are
// equal.
double bruck_limit(int ranks, double rate) {
  const double n = ranks, saved_steps = 2 * (n - 1) - 2 * std::ceil(std::log2(n));
  return kStepSeconds * rate * saved_steps / (kWholeMessages * 2 * (n - 1) / n);
}

// Doubling takes l (a + s/b), with l = log2 n steps, and one more if n is no power of two. Bruck's algorithms
// take 2 log2 n a + 2(n-1)/n s/b, the ring 2(n-1) a + 2(n-1)/n s/b. Returns the s at which doubling takes as
// long as the faster of the two.
double doubling_limit(int ranks, double rate) {
  const double n = ranks, rounds = std::ceil(std::log2(n));
  const double steps = rounds + (std::has_single_bit(static_cast<unsigned>(ranks)) ? 0 : 1);
  const double extra_bytes = steps - 2 * (n - 1) / n;  // per byte of the slice
  if (extra_bytes <= 0) return kMostSmallBytes;
  return kStepSeconds * rate * (std::min(2 * rounds, 2 * (n - 1)) - steps) / extra_bytes;
}

// The tree takes l (a + x), with x = s/b; the chain, with the best segments, (n-2) a + x + 2 sqrt((n-2) a x).
// With x = a y^2 they meet where (l-1) y^2 - 2 sqrt(n-2) y - (n-2-l) = 0.
double tree_limit(int ranks, double rate) {
  const double hops = ranks - 2, steps = std::ceil(std::log2(ranks));
  if (hops <= 0) return 0;
  const double y = (std::sqrt(hops) + std::sqrt(hops + (steps - 1) * (hops - steps))) / (steps - 1);
  return kStepSeconds * rate * y * y;
}

// A chain of k segments takes (n-2 + k)(a + s/(k b)): least if a segment has sqrt(s a b / (n-2)) bytes.
std::size_t chain_segment(std::size_t bytes, int ranks, const AlgorithmOptions& options) {
  if (ranks == 2) return options.segment_bytes;
  const double step_bytes = kStepSeconds * bytes_per_s(options.rate_bps);
  const double best = std::sqrt(static_cast<double>(bytes) * step_bytes / (ranks - 2));
  return std::min(options.segment_bytes, std::max(kLeastSegmentBytes, static_cast<std::size_t>(best)));
}

}  // namespace

Method choose_method(Collective collective, std::size_t bytes, int ranks, const AlgorithmOptions& options) {
  const double rate = bytes_per_s(options.rate_bps);
  const auto within = [bytes](const std::optional<std::size_t>& given, double computed) {
    return given ? bytes <= *given
                 : static_cast<double>(bytes) <= std::min<double>(computed, kMostSmallBytes);
  };
  switch (collective) {
    case Collective::kAllReduce:
      if (within(options.small_bytes, doubling_limit(ranks, rate))) return Method::kRecursiveDoubling;
      return within(options.bruck_bytes, bruck_limit(ranks, rate)) ? Method::kBruck : Method::kRing;
    case Collective::kBroadcast:
      return within(options.small_bytes, tree_limit(ranks, rate)) ? Method::kBinomial : Method::kChain;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      break;
  }
  // With up to 3 ranks, the ring has no more steps than Bruck's algorithm, and copies less.
  return within(options.small_bytes, ranks > 3 ? kMostSmallBytes : 0) ? Method::kBruck : Method::kRing;
}

// In a ring and a chain, neighbours are one rank away. In a tree with any root, and in Bruck's algorithm,
// they are a power of two away.
std::vector<int> neighbours(int rank, int ranks) {
  std::vector<int> all = doubling_partners(rank, ranks);
  for (int distance = 1; distance < ranks; distance *= 2) {
    all.push_back((rank + distance) % ranks);
    all.push_back((rank + ranks - distance) % ranks);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::unique_ptr<Algorithm> choose_algorithm(Transport& transport, const Slice& slice,
                                            const AlgorithmOptions& options) {
  const int ranks = transport.world_size();
  const std::size_t bytes = tensor_bytes(slice.call, slice.count, ranks);
  switch (choose_method(slice.call.collective, bytes, ranks, options)) {
    case Method::kRecursiveDoubling:
      return make_recursive_doubling(transport, slice);
    case Method::kBruck:
      return make_bruck(transport, slice);
    case Method::kBinomial:
      return make_binomial(transport, slice);
    case Method::kChain:
      return make_chain(transport, slice, chain_segment(bytes, ranks, options));
    case Method::kRing:
      break;
  }
  return make_ring(transport, slice, options.segment_bytes);
}

}  // namespace railweave
