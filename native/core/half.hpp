// SPDX-License-Identifier: Apache-2.0
// float16 (IEEE 754 binary16) and bfloat16 as bits, to and from float. Without branches, so that loops over
// them vectorise. Rounds half to even; a NaN stays a NaN and becomes quiet.
#pragma once

#include <bit>
#include <cstdint>

namespace railweave {

namespace half_detail {
inline constexpr std::uint32_t kSign = 0x8000'0000;
inline constexpr std::uint32_t kInfinity = 0x7f80'0000;
inline constexpr std::uint32_t kRebias = (127 - 15) << 23;  // between the exponents' biases
}  // namespace half_detail

inline float from_float16(std::uint16_t half) {
  using namespace half_detail;
  const std::uint32_t magnitude = half & 0x7fffu;
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t normal = (magnitude << 13) + kRebias;
  const std::uint32_t special = (magnitude << 13) | kInfinity;  // Inf and NaN keep their mantissa
  const auto denormal =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f);
  const std::uint32_t bits = magnitude >= 0x7c00u ? special : (magnitude < 0x0400u ? denormal : normal);
  return std::bit_cast<float>(bits | sign);
}

inline std::uint16_t to_float16(float value) {
  using namespace half_detail;
  const auto all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = all & ~kSign;
  const std::uint32_t sign = (all & kSign) >> 16;
  const std::uint32_t special = magnitude > kInfinity ? 0x7e00u | (magnitude >> 13 & 0x1ffu) : 0x7c00u;
  // Below the least normal number: an addition that leaves the rounded mantissa in the lowest bits.
  constexpr float kAlign = 0.5f;
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + kAlign) -
                                 std::bit_cast<std::uint32_t>(kAlign);
  const std::uint32_t normal =
      (magnitude - kRebias + 0xfffu + (magnitude >> 13 & 1u)) >> 13;  // may become Inf
  const std::uint32_t bits =
      magnitude >= 0x4780'0000u ? special : (magnitude < 0x3880'0000u ? denormal : normal);
  return static_cast<std::uint16_t>(bits | sign);
}

inline float from_bfloat16(std::uint16_t half) { return std::bit_cast<float>(std::uint32_t{half} << 16); }

inline std::uint16_t to_bfloat16(float value) {
  using namespace half_detail;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
  const std::uint32_t quiet = bits | 0x0040'0000u;
  return static_cast<std::uint16_t>(((bits & ~kSign) > kInfinity ? quiet : rounded) >> 16);
}

}  // namespace railweave
