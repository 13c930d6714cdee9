// SPDX-License-Identifier: Apache-2.0
#include "core/checksum.hpp"

#include <array>

#include "core/simd.hpp"

namespace railweave {

RAILWEAVE_SIMD std::uint64_t sum_words(Bytes data) { return sum_few_words(data); }

std::uint64_t sum_pseudo_header(Bytes addresses, std::uint8_t protocol, std::uint32_t length) {
  std::array<std::byte, 8> rest{};
  store_be(rest.data(), length);
  rest[7] = std::byte{protocol};
  return sum_few_words(addresses) + sum_few_words(rest);
}

}  // namespace railweave
