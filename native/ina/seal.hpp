// SPDX-License-Identifier: Apache-2.0
// The proof of a switch's sum: marks that only members can write, and a tag that adds up as the lanes do.
// docs/reference/wire-format.md has the construction, its assumptions and its proof.
//
// The last four lanes of a sealed packet are the seal. The first of them counts ranks, in three fields. The
// others are the tags t_j of rank r, one for each prime p_j < 2^32 / n,
//
//   t_j(r) = sum_i k_ij x_i(r) + pad_j(r)  mod p_j
//
// over the lanes x_i before them. Switches add the tags like any lane, without overflow. So modulo p_j their
// sum is the tag of the sums. This is a Carter-Wegman code ("New hash functions and their use in
// authentication and set equality", 1981) of a linear hash. Pads depend on the chunk and its identity, so
// that no tag serves twice. They are differences around the ring of ranks. Their sum over all ranks
// telescopes to one term that every rank computes alone. The sum over any other set of contributions does
// not.
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

using Residues = std::array<std::uint32_t, kPrimes>;

/// The terms of a chunk's tags besides the hash of its lanes.
struct Pads {
  Residues own{};  // of this rank
  Residues all{};  // of all ranks together
};

/// One rank's seals in one tree. `tree` tells apart all trees of a job: no chunk of a tree has the number of
/// another. Throws std::invalid_argument for packets of too few lanes.
class Seal {
 public:
  Seal(const Secret& secret, std::uint64_t tree, int rank, int world_size, std::uint32_t lanes);

  /// 64 bits that identify an item of a call, with its type, operation and length.
  std::uint64_t identity(const MessageLabel& label, Item item) const;
  /// Combine an item's identity with a number for the results of other chunks that the item was made from.
  std::uint64_t bind(std::uint64_t identity, std::uint64_t to) const;
  /// A hash of results, to bind to.
  std::uint64_t digest(std::uint32_t chunk, const std::byte* lanes) const;

  /// Return the mark of all contributions to a chunk, and of its result. The upper half identifies the item,
  /// and the lower half proves that a member wrote it.
  std::uint32_t mark(std::uint64_t chunk, std::uint64_t identity) const;
  /// Whether a member has written this mark, for any call.
  bool by_member(std::uint64_t chunk, std::uint32_t mark) const;

  /// The pads of a chunk whose identity and origin are `bound`.
  Pads pads(std::uint64_t chunk, std::uint64_t bound) const;
  /// Writes counts and tags behind the data lanes.
  void close(std::byte* lanes, const Counts& counts, const Pads& pads) const;
  /// Whether these are the sums of one contribution of each rank. With `without_own`, this rank is left out.
  bool holds(const std::byte* lanes, const Pads& pads, bool without_own) const;
  /// The counts of a result that holds.
  Counts counts(const std::byte* lanes) const;

  /// Gives the first `count` lanes, small values times 2^kMaximumTagBits, a tag each. The maximum of such
  /// lanes is the maximum of the values with its tag.
  void tag_maxima(std::byte* lanes, std::uint32_t count, std::uint64_t chunk) const;
  /// Whether a member has written each of the first `count` lanes.
  bool tagged(const std::byte* lanes, std::uint32_t count, std::uint64_t chunk) const;

 private:
  std::uint64_t hash(std::uint64_t of, std::uint64_t a, std::uint64_t b, std::uint64_t c) const;
  /// The remainder of a division by a prime.
  std::uint32_t reduce(std::uint64_t value, std::uint32_t prime) const;
  /// The linear hash of the lanes before the tags.
  Residues linear(const std::byte* lanes) const;
  std::int32_t tag(std::uint64_t chunk, std::uint32_t lane, std::int32_t value) const;

  Key key_;
  Key content_key_;  // of messages of any length
  std::uint64_t rank_;
  std::uint64_t world_size_;
  std::uint32_t tagged_;  // lanes that the tags cover: data and counts
  Hashes terms_;
  std::array<std::uint32_t, kPrimes> primes_;
  std::array<std::uint64_t, kPrimes> reciprocals_;                // 2^64 / prime, rounded down
  std::array<std::vector<std::uint32_t>, kPrimes> coefficients_;  // and zeros up to a multiple of 8, plus one
  Residues offset_{};  // of the linear hash: lanes count from -2^31 there
};

}  // namespace railweave::ina
