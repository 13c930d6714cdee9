// SPDX-License-Identifier: Apache-2.0
// Loads and stores at any alignment: in the host's order, which is little-endian, and in the network's.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace railweave {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

static_assert(std::endian::native == std::endian::little, "the codecs swap bytes from little-endian hosts");

template <typename T>
T load_le(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void store_le(std::byte* to, std::type_identity_t<T> value) {
  std::memcpy(to, &value, sizeof value);
}

template <typename T>
T load_be(const std::byte* from) {
  const T value = load_le<T>(from);
  if constexpr (sizeof(T) == 1) return value;
  if constexpr (sizeof(T) == 2) return static_cast<T>(__builtin_bswap16(static_cast<std::uint16_t>(value)));
  if constexpr (sizeof(T) == 4) return static_cast<T>(__builtin_bswap32(static_cast<std::uint32_t>(value)));
  if constexpr (sizeof(T) == 8) return static_cast<T>(__builtin_bswap64(static_cast<std::uint64_t>(value)));
}

template <typename T>
void store_be(std::byte* to, T value) {
  if constexpr (sizeof(T) == 2) value = static_cast<T>(__builtin_bswap16(static_cast<std::uint16_t>(value)));
  if constexpr (sizeof(T) == 4) value = static_cast<T>(__builtin_bswap32(static_cast<std::uint32_t>(value)));
  if constexpr (sizeof(T) == 8) value = static_cast<T>(__builtin_bswap64(static_cast<std::uint64_t>(value)));
  store_le<T>(to, value);
}

/// A message's fields, one after the other; both return where the last one ends.
template <typename... T>
std::byte* store_fields(std::byte* to, const T&... fields) {
  ((store_be(to, fields), to += sizeof fields), ...);
  return to;
}

template <typename... T>
const std::byte* load_fields(const std::byte* from, T&... fields) {
  ((fields = load_be<T>(from), from += sizeof fields), ...);
  return from;
}

}  // namespace railweave
