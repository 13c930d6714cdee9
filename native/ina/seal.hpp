// SPDX-License-Identifier: Apache-2.0
// The proof of a switch's sum: marks that only members can write, and a tag that adds up as the lanes do.
// docs/reference/wire-format.md has the construction, its assumptions and its proof.
//
// The last four lanes of a sealed packet are the seal. The first of them counts ranks, in three fields. The
// others are the tags t_j of rank r, one for each prime p_j < 2^32 / n,
//
//   t_j(r) = sum_i k_ij x_i(r) + pad_j(r)  mod p_j
//
// over the lanes x_i before them. Switches add the tags like any lane, without overflow, so that modulo p_j
// their sum is the tag of the sums: a Carter-Wegman code ("New hash functions and their use in authentication
// and set equality", 1981) of a linear hash. Pads depend on the chunk and what it is, so that no tag serves
// twice. They are differences around the ring of ranks, of which the sum over all ranks telescopes to one
// term that every rank computes alone; that of any other set of contributions does not.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collectives/label.hpp"
#include "core/secret.hpp"
#include "ina/call.hpp"

namespace railweave::ina {

inline constexpr std::uint32_t kPrimes = 3;
inline constexpr std::uint32_t kSealLanes = 1 + kPrimes;

/// The lanes of a packet that hold data.
constexpr std::uint32_t data_lanes(std::uint32_t lanes, bool sealed) {
  return sealed ? lanes - kSealLanes : lanes;
}

/// The greatest kPrimes primes of which `world_size` residues add up to less than 2^32.
std::array<std::uint32_t, kPrimes> seal_primes(int world_size);

/// One rank's seals in one tree. `tree` tells apart all trees of a job: no chunk of a tree has the number of
/// another. Throws std::invalid_argument for packets of too few lanes.
class Seal {
 public:
  Seal(const Secret& secret, std::uint64_t tree, int rank, int world_size, std::uint32_t lanes);

  /// 64 bits that stand for an item of a call, its type, operation and length.
  std::uint64_t identity(const MessageLabel& label, Item item) const;
  /// `identity`, and what else of the results of other chunks an item was made from.
  std::uint64_t bind(std::uint64_t identity, std::uint64_t to) const;
  /// A hash of results, to bind to.
  std::uint64_t digest(std::uint32_t chunk, const std::byte* lanes) const;

  /// What all contributions to a chunk carry, and its result. The upper half stands for the item, the lower
  /// one proves that a member wrote it.
  std::uint32_t mark(std::uint64_t chunk, std::uint64_t identity) const;
  /// Whether a member has written it, of whatever call.
  bool by_member(std::uint64_t chunk, std::uint32_t mark) const;

  /// Writes counts and tags behind the data lanes.
  void close(std::byte* lanes, const Counts& counts, std::uint64_t chunk, std::uint64_t bound) const;
  /// Whether these are the sums of one contribution of each rank; of all but this one's with `without_own`.
  bool holds(const std::byte* lanes, std::uint64_t chunk, std::uint64_t bound, bool without_own) const;
  /// The counts of a result that holds.
  Counts counts(const std::byte* lanes) const;

  /// Gives the first `count` lanes, small values times 2^kMaximumTagBits, a tag each. The maximum of such
  /// lanes is the maximum of the values with its tag.
  void tag_maxima(std::byte* lanes, std::uint32_t count, std::uint64_t chunk) const;
  /// Whether a member has written each of the first `count` lanes.
  bool tagged(const std::byte* lanes, std::uint32_t count, std::uint64_t chunk) const;

 private:
  using Residues = std::array<std::uint64_t, kPrimes>;

  std::uint64_t hash(std::uint64_t of, std::uint64_t a, std::uint64_t b, std::uint64_t c) const;
  /// Of the lanes before the tags.
  Residues linear(const std::byte* lanes) const;
  /// A term of the pads: of the ring's edge that ends at `rank`, or of all together.
  Residues term(std::uint64_t chunk, std::uint64_t bound, std::uint64_t rank) const;
  Residues pad(std::uint64_t chunk, std::uint64_t bound) const;
  std::int32_t tag(std::uint64_t chunk, std::uint32_t lane, std::int32_t value) const;
  std::uint64_t total() const { return world_size_; }

  Key key_;
  Key content_key_;  // of messages of any length
  std::uint64_t rank_;
  std::uint64_t world_size_;
  std::uint32_t tagged_;  // lanes that the tags cover: data and counts
  std::array<std::uint32_t, kPrimes> primes_;
  std::array<std::vector<std::uint32_t>, kPrimes> coefficients_;
  Residues offset_{};  // of the linear hash: lanes count from -2^31 there
};

}  // namespace railweave::ina
