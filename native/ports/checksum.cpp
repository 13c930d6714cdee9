// SPDX-License-Identifier: Apache-2.0
#include "ports/checksum.hpp"

#include <array>

#include "core/simd.hpp"

namespace railweave::ports {

RAILWEAVE_SIMD std::uint64_t sum_words(Bytes data) {
  const std::byte* at = data.data();
  const std::size_t words = data.size() / 4;
  std::uint64_t sum = 0;  // cannot overflow: fewer than 2^32 words are ever summed
  for (std::size_t i = 0; i < words; ++i) {
    std::uint32_t word;
    std::memcpy(&word, at + 4 * i, sizeof word);
    sum += word;
  }
  std::uint32_t tail = 0;
  if (const std::size_t rest = data.size() % 4) std::memcpy(&tail, at + 4 * words, rest);
  return sum + tail;
}

std::uint64_t sum_pseudo_header(Bytes addresses, std::uint8_t protocol, std::uint32_t length) {
  std::array<std::byte, 8> rest{};
  store_be(rest.data(), length);
  rest[7] = std::byte{protocol};
  return sum_words(addresses) + sum_words(rest);
}

}  // namespace railweave::ports
