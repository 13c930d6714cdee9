// SPDX-License-Identifier: Apache-2.0
// The Internet checksum (RFC 1071) in pieces. Sums are taken over 16-bit words in memory order. One's
// complement addition gives the right result in any byte order, if the result is stored without swapping,
// too.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/bytes.hpp"

namespace railweave {

/// Unfolded sum of `data`; an odd last byte counts as if a zero byte followed.
std::uint64_t sum_words(Bytes data);

/// The same, inlined: faster for a few words.
inline __attribute__((always_inline)) std::uint64_t sum_few_words(Bytes data) {
  const std::byte* at = data.data();
  const std::size_t words = data.size() / 4;
  std::uint64_t sum = 0;  // cannot overflow: fewer than 2^32 words are ever summed
  for (std::size_t i = 0; i < words; ++i) {
    std::uint32_t word;
    std::memcpy(&word, at + 4 * i, sizeof word);
    sum += word;
  }
  // A tail that was put together byte by byte would be loaded while its bytes are still being stored.
  if (data.size() & 2) {
    std::uint16_t word;
    std::memcpy(&word, at + 4 * words, sizeof word);
    sum += word;
  }
  if (data.size() & 1) sum += static_cast<std::uint64_t>(data.back());
  return sum;
}

/// Unfolded sum of the pseudo header of IPv4 or IPv6: `addresses` is source and destination, side by side in
/// the packet; `length` is that of the transport header and its payload.
std::uint64_t sum_pseudo_header(Bytes addresses, std::uint8_t protocol, std::uint32_t length);

/// Folds to 16 bits, not complemented.
constexpr std::uint16_t fold(std::uint64_t sum) {
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

/// The checksum to store for `sum`, in memory order.
constexpr std::uint16_t checksum(std::uint64_t sum) { return static_cast<std::uint16_t>(~fold(sum)); }

/// As `checksum`, with UDP's rule that a computed zero is sent as all ones.
constexpr std::uint16_t udp_checksum(std::uint64_t sum) {
  const std::uint16_t value = checksum(sum);
  return value == 0 ? 0xffff : value;
}

/// Whether `header`, its checksum included, adds up.
inline bool checksum_right(Bytes header) { return fold(sum_few_words(header)) == 0xffff; }

inline void store_raw16(std::byte* to, std::uint16_t value) { std::memcpy(to, &value, sizeof value); }

}  // namespace railweave
