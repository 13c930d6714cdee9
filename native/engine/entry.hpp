// SPDX-License-Identifier: Apache-2.0
// Entries of match tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace railweave::engine {

struct CounterValue {
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;
};

/// One rate of a meter: tokens per microsecond and the size of its bucket.
struct MeterRate {
  double tokens_per_us = 0;
  std::uint64_t burst = 0;
};

/// An inclusive range on `width` bits of a key word, from bit `shift`. A field of more than 64 bits takes one
/// of these per word, the least significant first, of which the first has the width.
struct KeyRange {
  std::uint32_t word, shift, width;
  std::uint64_t low, high;
};

/// The keys that an entry matches: key & mask == value, and all ranges hold.
struct Match {
  std::vector<std::uint64_t> value;
  std::vector<std::uint64_t> mask;
  std::vector<KeyRange> ranges;
  std::int64_t priority = 0;  // greater wins; of an LPM table: the prefix length
};

/// Of the masked words of a key.
inline std::uint64_t hash_key(const std::uint64_t* key, const std::uint64_t* mask, std::size_t words) {
  std::uint64_t hash = 0x9e3779b97f4a7c15;
  for (std::size_t i = 0; i < words; ++i) {
    hash = (hash ^ (key[i] & mask[i])) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
  }
  return hash;
}

/// An action with its parameters, padded with zeros to the plan's parameter_words.
struct Choice {
  std::uint32_t action = 0;
  std::vector<std::uint64_t> parameters;
};

struct Entry {
  std::uint64_t handle = 0;
  Match match;
  std::uint32_t action = 0;
  std::vector<std::uint64_t> parameters;  // padded with zeros to the plan's parameter_words
  CounterValue counter;
  std::uint32_t slot = 0;  // lowest free index below the table's size: of the direct meter, and BMv2's order
  std::uint64_t last_hit_us = 0;
};

}  // namespace railweave::engine
