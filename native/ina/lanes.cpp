// SPDX-License-Identifier: Apache-2.0
#include "ina/lanes.hpp"

#include <algorithm>
#include <limits>

#include "core/half.hpp"
#include "core/simd.hpp"

namespace railweave::ina {
namespace {

constexpr std::int32_t kNanKey = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kQuietNan = 0x7fc00000;
constexpr std::int32_t kMagnitude = 0x7fffffff;
constexpr std::int32_t kInfinity = 0x7f800000;

/// Converts between IEEE's sign and magnitude and two's complement. It is its own inverse.
[[gnu::always_inline]] inline std::int32_t flip_negative(std::int32_t bits) {
  return bits ^ (bits >> 31 & kMagnitude);
}

RAILWEAVE_SIMD
void widen_float16(const std::byte* __restrict values, std::size_t count, std::byte* __restrict floats) {
  for (std::size_t i = 0; i < count; ++i) store(floats, i, from_float16(load<std::uint16_t>(values, i)));
}

RAILWEAVE_SIMD
void widen_bfloat16(const std::byte* __restrict values, std::size_t count, std::byte* __restrict floats) {
  for (std::size_t i = 0; i < count; ++i) store(floats, i, from_bfloat16(load<std::uint16_t>(values, i)));
}

RAILWEAVE_SIMD
void narrow_float16(const std::byte* __restrict floats, std::size_t count, std::byte* __restrict values) {
  for (std::size_t i = 0; i < count; ++i) store(values, i, to_float16(load<float>(floats, i)));
}

RAILWEAVE_SIMD
void narrow_bfloat16(const std::byte* __restrict floats, std::size_t count, std::byte* __restrict values) {
  for (std::size_t i = 0; i < count; ++i) store(values, i, to_bfloat16(load<float>(floats, i)));
}

}  // namespace

RAILWEAVE_SIMD
void encode_integers(const std::byte* __restrict values, std::size_t count, Order order,
                     std::byte* __restrict lanes) {
  const auto mask = static_cast<std::int32_t>(order);
  for (std::size_t i = 0; i < count; ++i) store_lane(lanes, i, load<std::int32_t>(values, i) ^ mask);
}

RAILWEAVE_SIMD
void decode_integers(const std::byte* __restrict lanes, std::size_t count, Order order,
                     std::byte* __restrict values) {
  const auto mask = static_cast<std::int32_t>(order);
  for (std::size_t i = 0; i < count; ++i) store(values, i, load_lane(lanes, i) ^ mask);
}

RAILWEAVE_SIMD
bool within(const std::byte* values, std::size_t count, std::int32_t most) {
  std::uint32_t beyond = 0;
  const auto range = 2 * static_cast<std::uint32_t>(most);
  for (std::size_t i = 0; i < count; ++i)
    beyond |= load<std::uint32_t>(values, i) + static_cast<std::uint32_t>(most) > range ? 1u : 0u;
  return beyond == 0;
}

RAILWEAVE_SIMD
bool at_least(const std::byte* lanes, const std::byte* least, std::size_t count) {
  std::uint32_t below = 0;
  for (std::size_t i = 0; i < count; ++i) below |= load_lane(lanes, i) < load_lane(least, i) ? 1u : 0u;
  return below == 0;
}

// A double holds the quotient to 2^-21. A quotient that is not an integer is at least 1/n away from the next
// integer. So the truncation is exact.
RAILWEAVE_SIMD
void decode_integer_mean(const std::byte* __restrict lanes, std::size_t count, int world_size,
                         std::byte* __restrict values) {
  const double ranks = world_size;
  for (std::size_t i = 0; i < count; ++i)
    store(values, i, static_cast<std::int32_t>(static_cast<double>(load_lane(lanes, i)) / ranks));
}

RAILWEAVE_SIMD
void encode_ordered(const std::byte* __restrict floats, std::size_t count, Order order,
                    std::byte* __restrict lanes) {
  const auto mask = static_cast<std::int32_t>(order);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t bits = load<std::int32_t>(floats, i);
    const bool nan = (bits & kMagnitude) > kInfinity;
    store_lane(lanes, i, nan ? kNanKey : flip_negative(bits) ^ mask);
  }
}

RAILWEAVE_SIMD
void decode_ordered(const std::byte* __restrict lanes, std::size_t count, Order order,
                    std::byte* __restrict floats) {
  const auto mask = static_cast<std::int32_t>(order);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t key = load_lane(lanes, i);
    store(floats, i, key == kNanKey ? kQuietNan : flip_negative(key ^ mask));
  }
}

void widen(DType half, const std::byte* values, std::size_t count, std::byte* floats) {
  (half == DType::kFloat16 ? widen_float16 : widen_bfloat16)(values, count, floats);
}

void narrow(DType half, const std::byte* floats, std::size_t count, std::byte* values) {
  (half == DType::kFloat16 ? narrow_float16 : narrow_bfloat16)(floats, count, values);
}

RAILWEAVE_SIMD
void merge_sum(const std::byte* __restrict lanes, std::size_t count, std::byte* __restrict into) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto sum =
        static_cast<std::uint32_t>(load_lane(lanes, i)) + static_cast<std::uint32_t>(load_lane(into, i));
    store_lane(into, i, static_cast<std::int32_t>(sum));
  }
}

RAILWEAVE_SIMD
void merge_max(const std::byte* __restrict lanes, std::size_t count, std::byte* __restrict into) {
  for (std::size_t i = 0; i < count; ++i)
    store_lane(into, i, std::max(load_lane(lanes, i), load_lane(into, i)));
}

void fill_lanes(std::byte* lanes, std::size_t from, std::size_t to, std::int32_t value) {
  for (std::size_t i = from; i < to; ++i) store_lane(lanes, i, value);
}

}  // namespace railweave::ina
