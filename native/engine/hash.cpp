// SPDX-License-Identifier: Apache-2.0
#include "engine/hash.hpp"

#include <array>

#include "core/checksum.hpp"
#include "core/crc32.hpp"

namespace railweave::engine {
namespace {

/// Table of a CRC that takes the least significant bit first; `polynomial` is written reflected.
template <typename T, T polynomial>
constexpr std::array<T, 256> reflected_table() {
  std::array<T, 256> table{};
  for (unsigned i = 0; i < 256; ++i) {
    T value = static_cast<T>(i);
    for (int bit = 0; bit < 8; ++bit) {
      value = static_cast<T>((value >> 1) ^ ((value & 1) ? polynomial : T{0}));
    }
    table[i] = value;
  }
  return table;
}

template <typename T, T polynomial>
T reflected_crc(Bytes input, T remainder) {
  static constexpr auto kTable = reflected_table<T, polynomial>();
  for (const std::byte byte : input) {
    remainder = static_cast<T>(kTable[(remainder ^ static_cast<T>(byte)) & 0xff] ^ (remainder >> 8));
  }
  return remainder;
}

/// Most significant bit first.
template <typename T, T polynomial>
T straight_crc(Bytes input, T remainder) {
  constexpr int kBits = 8 * sizeof(T);
  for (const std::byte byte : input) {
    remainder = static_cast<T>(remainder ^ (static_cast<unsigned>(byte) << (kBits - 8)));
    for (int bit = 0; bit < 8; ++bit) {
      remainder = static_cast<T>((remainder << 1) ^ (remainder >> (kBits - 1) ? polynomial : 0));
    }
  }
  return remainder;
}

template <typename T>
T xor_words(Bytes input) {
  T result = 0;
  for (std::size_t i = 0; i < input.size(); ++i) {
    const auto shift = 8 * (sizeof(T) - 1 - i % sizeof(T));
    result = static_cast<T>(result ^ (static_cast<T>(input[i]) << shift));
  }
  return result;
}

std::uint64_t identity(Bytes input) {
  std::uint64_t result = 0;
  for (std::size_t i = 0; i < input.size() && i < 8; ++i) {
    result = (result << 8) | static_cast<std::uint64_t>(input[i]);
  }
  return result;
}

/// FNV-1 on signed bytes, then an avalanche, as in BMv2's simple_switch.
std::uint32_t hash_ex(Bytes input) {
  std::uint32_t hash = 2166136261;
  for (const std::byte byte : input) {
    const auto extended = static_cast<std::uint32_t>(static_cast<std::int8_t>(byte));
    hash = (hash ^ extended) * 16777619;
  }
  hash += hash << 13;
  hash ^= hash >> 7;
  hash += hash << 3;
  hash ^= hash >> 17;
  hash += hash << 5;
  return hash;
}

/// XXH64 with seed 0 (Y. Collet, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).
std::uint64_t xxh64(Bytes input) {
  constexpr std::uint64_t kP1 = 0x9e3779b185ebca87, kP2 = 0xc2b2ae3d27d4eb4f, kP3 = 0x165667b19e3779f9,
                          kP4 = 0x85ebca77c2b2ae63, kP5 = 0x27d4eb2f165667c5;
  const auto round = [](std::uint64_t sum, std::uint64_t input) {
    return std::rotl(sum + input * kP2, 31) * kP1;
  };
  const std::byte* at = input.data();
  std::size_t left = input.size();
  std::uint64_t hash = kP5;
  if (left >= 32) {
    std::uint64_t sums[] = {kP1 + kP2, kP2, 0, std::uint64_t{0} - kP1};
    for (; left >= 32; left -= 32) {
      for (auto& sum : sums) {
        sum = round(sum, load_le<std::uint64_t>(at));
        at += 8;
      }
    }
    hash = std::rotl(sums[0], 1) + std::rotl(sums[1], 7) + std::rotl(sums[2], 12) + std::rotl(sums[3], 18);
    for (const auto sum : sums) hash = (hash ^ round(0, sum)) * kP1 + kP4;
  }
  hash += input.size();
  for (; left >= 8; left -= 8, at += 8)
    hash = std::rotl(hash ^ round(0, load_le<std::uint64_t>(at)), 27) * kP1 + kP4;
  if (left >= 4) {
    hash = std::rotl(hash ^ (load_le<std::uint32_t>(at) * kP1), 23) * kP2 + kP3;
    left -= 4;
    at += 4;
  }
  for (; left > 0; --left, ++at) hash = std::rotl(hash ^ (static_cast<std::uint64_t>(*at) * kP5), 11) * kP1;
  hash = (hash ^ (hash >> 33)) * kP2;
  hash = (hash ^ (hash >> 29)) * kP3;
  return hash ^ (hash >> 32);
}

}  // namespace

std::uint64_t compute(Algorithm algorithm, Bytes input) {
  switch (algorithm) {
    case Algorithm::crc16:
    case Algorithm::crc16_custom:
      return reflected_crc<std::uint16_t, 0xa001>(input, 0);
    case Algorithm::crc32:
    case Algorithm::crc32_custom:
      return ~crc32_update(kCrcStart, input);
    case Algorithm::crcCCITT:
      return straight_crc<std::uint16_t, 0x1021>(input, 0xffff);
    case Algorithm::csum16:
    case Algorithm::cksum16:
      return __builtin_bswap16(checksum(sum_words(input)));
    case Algorithm::xor16:
      return xor_words<std::uint16_t>(input);
    case Algorithm::xor32:
      return xor_words<std::uint32_t>(input);
    case Algorithm::identity:
      return identity(input);
    case Algorithm::xxh64:
    case Algorithm::bmv2_hash:
      return xxh64(input);
    case Algorithm::crc8_custom:
      return straight_crc<std::uint8_t, 0x07>(input, 0);
    case Algorithm::crc64_custom:
      return reflected_crc<std::uint64_t, 0xd800000000000000>(input, 0);
    case Algorithm::hash_ex:
      return hash_ex(input);
    case Algorithm::kCount:
      break;
  }
  return 0;
}

}  // namespace railweave::engine
