// SPDX-License-Identifier: Apache-2.0
#include "ina/fixed_point.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/simd.hpp"
#include "ina/lanes.hpp"

namespace railweave::ina {
namespace {

constexpr std::int32_t kMagnitude = 0x7fffffff;
constexpr std::int32_t kInfinity = 0x7f800000;
constexpr std::int32_t kIntegral = 0x4b000000;     // 2^23 as a float's bits: from here on floats are integers
constexpr std::int32_t kLargestLane = 0x4effffff;  // the last float below 2^31

/// 2^power as two factors, because power may be past what one float can hold. Multiplying by one after the
/// other is exact, except for values so small that they end as 0 anyway.
struct PowerOfTwo {
  explicit PowerOfTwo(int power)
      : first(std::ldexp(1.0f, power / 2)), second(std::ldexp(1.0f, power - power / 2)) {}
  float first;
  float second;
};

int lane_power(int exponent, int headroom) { return 30 - headroom - (exponent - kExponentBias); }

/// Scaled, saturated (NaN too) and rounded half to even. Choices are integer masks. Rounding is plain
/// arithmetic, because adding 2^23 to a smaller number leaves no bits for a fraction. So compilers can
/// vectorise it on any machine, without relaxed floating-point rules.
[[gnu::always_inline]] inline std::int32_t to_lane(float value, const PowerOfTwo& scale) {
  const auto bits = std::bit_cast<std::int32_t>(value * scale.first * scale.second);
  const std::int32_t sign = bits & ~kMagnitude;
  const std::int32_t magnitude = std::min(bits & kMagnitude, kLargestLane);
  const auto clamped = std::bit_cast<float>(magnitude | sign);
  const auto integral = std::bit_cast<float>(kIntegral | sign);
  const auto rounded = std::bit_cast<std::int32_t>((clamped + integral) - integral);
  const std::int32_t has_fraction = (magnitude - kIntegral) >> 31;  // all ones below 2^23
  const std::int32_t nearest = (rounded & has_fraction) | ((magnitude | sign) & ~has_fraction);
  return static_cast<std::int32_t>(std::bit_cast<float>(nearest));
}

/// Whether float arithmetic is enough: 2^power is a normal float, so is every nonzero result, and no sum
/// reaches infinity. Then rounding the lane and scaling it exactly equals rounding once.
bool narrow(int exponent, int headroom) {
  const int power = -lane_power(exponent, headroom);
  return power >= -126 && exponent - kExponentBias + headroom < 127;
}

RAILWEAVE_SIMD
void dequantise_narrow(const std::byte* __restrict lanes, std::size_t count, float unit, float divisor,
                       std::byte* __restrict floats) {
  for (std::size_t i = 0; i < count; ++i)
    store(floats, i, static_cast<float>(load_lane(lanes, i)) * unit / divisor);
}

RAILWEAVE_SIMD
void dequantise_narrow(const std::byte* __restrict lanes, std::size_t count, float unit,
                       std::byte* __restrict floats) {
  for (std::size_t i = 0; i < count; ++i) store(floats, i, static_cast<float>(load_lane(lanes, i)) * unit);
}

/// A lane that float32 can hold: of a large lane, bit 7 becomes 1 if any bit below is, and these become 0.
[[gnu::always_inline]] inline std::int32_t jam(std::int32_t lane) {
  const std::int32_t sign = lane >> 31;
  const auto magnitude = static_cast<std::uint32_t>((lane ^ sign) - sign);  // -2^31 too
  const std::uint32_t jammed = (magnitude & ~127u) | (((magnitude & 127u) + 127u) & 128u);
  const std::uint32_t kept = magnitude < (1u << 24) ? magnitude : jammed;
  return static_cast<std::int32_t>((kept ^ static_cast<std::uint32_t>(sign)) -
                                   static_cast<std::uint32_t>(sign));
}

RAILWEAVE_SIMD
void dequantise_jammed(const std::byte* __restrict lanes, std::size_t count, float unit,
                       std::byte* __restrict floats) {
  for (std::size_t i = 0; i < count; ++i)
    store(floats, i, static_cast<float>(jam(load_lane(lanes, i))) * unit);
}

/// Rounded to odd. Below the normal floats the place of the last bit is fixed.
[[gnu::always_inline]] inline float to_odd(double value) {
  constexpr std::uint64_t kDropped = (std::uint64_t{1} << 29) - 1;  // of the mantissa
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto normal = static_cast<float>(
      std::bit_cast<double>((bits & ~kDropped) | ((bits & kDropped) != 0 ? kDropped + 1 : 0)));
  const double grid = std::abs(value) * 0x1p149;  // exact, and less than 2^23 where it is used
  const double below = std::floor(grid);
  const bool even = std::floor(below / 2) * 2 == below;
  const double odd = below + (grid != below && even ? 1 : 0);
  const auto denormal = static_cast<float>(std::copysign(odd * 0x1p-149, value));
  return std::abs(value) < 0x1p-126 ? denormal : normal;
}

RAILWEAVE_SIMD
void dequantise_odd(const std::byte* __restrict lanes, std::size_t count, double unit, double divisor,
                    std::byte* __restrict floats) {
  for (std::size_t i = 0; i < count; ++i)
    store(floats, i, to_odd(static_cast<double>(load_lane(lanes, i)) * unit / divisor));
}

RAILWEAVE_SIMD
void dequantise_wide(const std::byte* __restrict lanes, std::size_t count, double unit, double divisor,
                     std::byte* __restrict floats) {
  for (std::size_t i = 0; i < count; ++i)
    store(floats, i, static_cast<float>(static_cast<double>(load_lane(lanes, i)) * unit / divisor));
}

}  // namespace

int headroom_bits(int world_size) {
  const auto ranks = static_cast<unsigned>(world_size);
  return std::bit_width(ranks > 128 ? ranks : ranks - 1);
}

RAILWEAVE_SIMD
ChunkScan scan(const std::byte* floats, std::size_t count) {
  std::int32_t largest = 0;
  std::int32_t largest_finite = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = load<std::int32_t>(floats, i) & kMagnitude;
    const std::int32_t finite = magnitude < kInfinity ? magnitude : 0;
    largest = std::max(largest, magnitude);
    largest_finite = std::max(largest_finite, finite);
  }
  return {.exponent = std::max(largest_finite >> 23, kMinExponent), .finite = largest < kInfinity};
}

RAILWEAVE_SIMD
void quantise(const std::byte* __restrict floats, std::size_t count, int exponent, int headroom,
              std::byte* __restrict lanes) {
  const PowerOfTwo scale(lane_power(exponent, headroom));
  for (std::size_t i = 0; i < count; ++i) store_lane(lanes, i, to_lane(load<float>(floats, i), scale));
}

RAILWEAVE_SIMD
bool quantise_finite(const std::byte* __restrict floats, std::size_t count, int exponent, int headroom,
                     std::byte* __restrict lanes, std::uint8_t* __restrict classes) {
  const PowerOfTwo scale(lane_power(exponent, headroom));
  std::uint8_t any = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t bits = load<std::int32_t>(floats, i);
    const std::int32_t magnitude = bits & kMagnitude;
    const std::uint8_t infinity = bits < 0 ? kNegativeInfinity : kPositiveInfinity;
    const std::uint8_t nonfinite = magnitude > kInfinity ? std::uint8_t{kNan} : infinity;
    classes[i] = magnitude < kInfinity ? std::uint8_t{kFinite} : nonfinite;
    any |= classes[i];
    store_lane(lanes, i, to_lane(std::bit_cast<float>(magnitude < kInfinity ? bits : 0), scale));
  }
  return any != 0;
}

void dequantise(const std::byte* lanes, std::size_t count, int exponent, int headroom, std::byte* floats) {
  const int power = -lane_power(exponent, headroom);
  if (narrow(exponent, headroom)) {
    dequantise_narrow(lanes, count, std::ldexp(1.0f, power), floats);
  } else {
    dequantise_wide(lanes, count, std::ldexp(1.0, power), 1.0, floats);
  }
}

void dequantise_mean(const std::byte* lanes, std::size_t count, int exponent, int headroom, int world_size,
                     std::byte* floats) {
  const int power = -lane_power(exponent, headroom);
  if (narrow(exponent, headroom)) {
    dequantise_narrow(lanes, count, std::ldexp(1.0f, power), static_cast<float>(world_size), floats);
  } else {
    dequantise_wide(lanes, count, std::ldexp(1.0, power), world_size, floats);
  }
}

void dequantise_to_odd(const std::byte* lanes, std::size_t count, int exponent, int headroom, int divisor,
                       std::byte* floats) {
  const int power = -lane_power(exponent, headroom);
  if (divisor == 1 && narrow(exponent, headroom)) {
    dequantise_jammed(lanes, count, std::ldexp(1.0f, power), floats);
  } else {
    dequantise_odd(lanes, count, std::ldexp(1.0, power), divisor, floats);
  }
}

float rounded_to_odd(double value) { return to_odd(value); }

double error_bound(int exponent, int world_size) {
  return std::ldexp(0.5 * world_size, -lane_power(exponent, headroom_bits(world_size)));
}

RAILWEAVE_SIMD
void encode_classes(const std::uint8_t* __restrict classes, std::size_t count, std::byte* __restrict lanes) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t infinity = classes[i] == kPositiveInfinity ? 1 << 10 : 1;
    const std::int32_t nonfinite = classes[i] == kNan ? 1 << 20 : infinity;
    store_lane(lanes, i, classes[i] == kFinite ? 0 : nonfinite);
  }
}

void apply_classes(const std::byte* lanes, std::size_t count, std::byte* floats) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t counts = load_lane(lanes, i);
    if (counts == 0) continue;
    const bool positive = (counts >> 10 & 0x3ff) != 0;
    const bool negative = (counts & 0x3ff) != 0;
    const bool nan = (counts >> 20) != 0 || (positive && negative);
    const float result = nan ? std::numeric_limits<float>::quiet_NaN() : positive ? infinity : -infinity;
    store(floats, i, result);
  }
}

}  // namespace railweave::ina
