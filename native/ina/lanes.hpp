// SPDX-License-Identifier: Apache-2.0
// Lanes in a packet, and the maps from values to lanes that need no exponent: integers, and floats by order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/collective.hpp"

namespace railweave::ina {

template <typename T>
[[gnu::always_inline]] inline T load(const std::byte* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof value, sizeof value);
  return value;
}

template <typename T>
[[gnu::always_inline]] inline void store(std::byte* to, std::size_t index, T value) {
  std::memcpy(to + index * sizeof value, &value, sizeof value);
}

[[gnu::always_inline]] inline std::int32_t load_lane(const std::byte* lanes, std::size_t index) {
  return static_cast<std::int32_t>(__builtin_bswap32(load<std::uint32_t>(lanes, index)));
}

[[gnu::always_inline]] inline void store_lane(std::byte* lanes, std::size_t index, std::int32_t value) {
  store(lanes, index, __builtin_bswap32(static_cast<std::uint32_t>(value)));
}

/// A switch has MAX but not MIN. The complement reverses the order of int32.
enum class Order : std::int32_t { kMax = 0, kMin = -1 };

/// int32 unchanged (kMax, also for sums), or complemented. `decode_integers` is the inverse.
void encode_integers(const std::byte* values, std::size_t count, Order order, std::byte* lanes);
void decode_integers(const std::byte* lanes, std::size_t count, Order order, std::byte* values);

/// Whether no int32 is farther from 0 than `most`.
bool within(const std::byte* values, std::size_t count, std::int32_t most);

/// Whether all of `lanes` are at least those of `least`.
bool at_least(const std::byte* lanes, const std::byte* least, std::size_t count);

/// Sums divided by `world_size`, truncated towards zero.
void decode_integer_mean(const std::byte* lanes, std::size_t count, int world_size, std::byte* values);

/// Float32 as int32 of the same order. NaN is above everything in both orders, so that it wins as in
/// numpy.maximum and numpy.minimum. -0 is below +0.
void encode_ordered(const std::byte* floats, std::size_t count, Order order, std::byte* lanes);
void decode_ordered(const std::byte* lanes, std::size_t count, Order order, std::byte* floats);

// float16 and bfloat16 are reduced as float32, which holds both exactly.
constexpr bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }
/// Exact conversion to float32.
void widen(DType half, const std::byte* values, std::size_t count, std::byte* floats);
/// Rounded half to even; Inf where that exceeds the type. NaN stay NaN.
void narrow(DType half, const std::byte* floats, std::size_t count, std::byte* values);

/// Sums or maxima of both, as a switch computes them, in `into`.
void merge_sum(const std::byte* lanes, std::size_t count, std::byte* into);
void merge_max(const std::byte* lanes, std::size_t count, std::byte* into);

/// `value` in lanes `from` to `to`.
void fill_lanes(std::byte* lanes, std::size_t from, std::size_t to, std::int32_t value);

}  // namespace railweave::ina
