// SPDX-License-Identifier: Apache-2.0
// The hash and checksum algorithms of v1model, as BMv2 computes them.
#pragma once

#include <cstdint>

#include "core/bytes.hpp"

namespace railweave::engine {

/// Names as they stand in BMv2's JSON; a plan names an algorithm by its place in this list.
#define RAILWEAVE_ENGINE_ALGORITHMS(X) \
  X(crc16)                             \
  X(crc32)                             \
  X(crcCCITT)                          \
  X(csum16)                            \
  X(cksum16)                           \
  X(xor16)                             \
  X(xor32)                             \
  X(identity)                          \
  X(crc16_custom)                      \
  X(crc32_custom)                      \
  X(xxh64)                             \
  X(bmv2_hash)                         \
  X(crc8_custom)                       \
  X(crc64_custom)                      \
  X(hash_ex)

enum class Algorithm : std::uint32_t {
#define X(name) name,
  RAILWEAVE_ENGINE_ALGORITHMS(X)
#undef X
      kCount
};

inline constexpr std::uint32_t kAlgorithms = static_cast<std::uint32_t>(Algorithm::kCount);
inline constexpr const char* kAlgorithmNames[] = {
#define X(name) #name,
    RAILWEAVE_ENGINE_ALGORITHMS(X)
#undef X
};

std::uint64_t compute(Algorithm algorithm, Bytes input);

}  // namespace railweave::engine
