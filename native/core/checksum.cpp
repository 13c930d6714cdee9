// SPDX-License-Identifier: Apache-2.0
#include "core/checksum.hpp"

#include "core/simd.hpp"

namespace railweave {

RAILWEAVE_SIMD std::uint64_t sum_words(Bytes data) { return sum_few_words(data); }

std::uint64_t sum_pseudo_header(Bytes addresses, std::uint8_t protocol, std::uint32_t length) {
  // Two words more: the length, and the protocol as the last byte.
  return sum_few_words(addresses) + __builtin_bswap32(length) + (std::uint64_t{protocol} << 24);
}

}  // namespace railweave
