// SPDX-License-Identifier: Apache-2.0
#include "ina/exact.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "ina/fixed_point.hpp"
#include "ina/lanes.hpp"

namespace railweave::ina {
namespace {

constexpr int kUnit = -149;                            // exponent of the least float
constexpr int kBits = 128 - kUnit;                     // of the largest, in that unit
constexpr int kMantissa = 23;                          // bits of a float, without the one that is implied
constexpr std::size_t kMostLimbs = (kBits + 20) / 21;  // of kMaxWorldSize ranks
constexpr int kDoubleBits = 53;

int limb_bits(int world_size) { return 31 - headroom_bits(world_size); }

std::size_t limbs_of(int world_size) {
  const int bits = limb_bits(world_size);
  return static_cast<std::size_t>((kBits + bits - 1) / bits);
}

ValueClass class_of(std::uint32_t bits) {
  if ((bits >> kMantissa & 0xff) != 0xff) return kFinite;
  if ((bits & ((1u << kMantissa) - 1)) != 0) return kNan;
  return bits >> 31 ? kNegativeInfinity : kPositiveInfinity;
}

/// A sum as digits without a sign: limbs of the same width, and what they have carried over above them.
struct Magnitude {
  std::array<std::uint64_t, kMostLimbs + 1> digits;
  bool negative;
};

Magnitude carried(const std::byte* lanes, std::size_t count, std::size_t limbs, int bits) {
  Magnitude sum{};
  for (const std::int64_t sign : {1, -1}) {
    std::int64_t carry = 0;
    for (std::size_t limb = 0; limb < limbs; ++limb) {
      carry += sign * load_lane(lanes, limb * count);
      sum.digits[limb] = static_cast<std::uint64_t>(carry) & ((std::uint64_t{1} << bits) - 1);
      carry >>= bits;
    }
    sum.digits[limbs] = static_cast<std::uint64_t>(carry);
    sum.negative = sign < 0;
    if (carry >= 0) break;  // else the digits are those of a complement
  }
  return sum;
}

/// The quotient, with as many bits as a double has, the last of which is 1 if any below it is: so rounding it
/// once more to a float is rounding once.
double divided(const Magnitude& sum, std::size_t limbs, int bits, std::uint64_t divisor) {
  std::uint64_t top = 0, rest = 0;
  int power = kUnit + static_cast<int>(limbs + 1) * bits;  // of the digit before; one is below the unit
  bool full = false, more = false;
  for (std::size_t place = limbs + 2; place-- > 0;) {
    rest = rest << bits | (place > 0 ? sum.digits[place - 1] : 0);
    const std::uint64_t digit = rest / divisor;
    rest %= divisor;
    full = full || std::bit_width(top) + bits > 64;
    if (full) {
      more = more || digit != 0;
    } else {
      top = top << bits | digit;
      power -= bits;
    }
  }
  more = more || rest != 0;
  if (const int excess = std::bit_width(top) - kDoubleBits; excess > 0) {
    more = more || (top & ((std::uint64_t{1} << excess) - 1)) != 0;
    top >>= excess;
    power += excess;
  }
  return std::ldexp(static_cast<double>(top | (more ? 1 : 0)), power);
}

}  // namespace

std::size_t exact_lanes(int world_size) { return limbs_of(world_size) + 1; }

void encode_exact(const std::byte* floats, std::size_t count, int world_size, std::byte* lanes) {
  const std::size_t limbs = limbs_of(world_size);
  const int bits = limb_bits(world_size);
  fill_lanes(lanes, 0, limbs * count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = load<std::uint32_t>(floats, i);
    const std::uint8_t found = class_of(value);
    encode_classes(&found, 1, lanes + (limbs * count + i) * sizeof(std::int32_t));
    if (found != kFinite) continue;
    const int exponent = static_cast<int>(value >> kMantissa & 0xff);
    const std::uint64_t implied = exponent > 0 ? std::uint64_t{1} << kMantissa : 0;
    const int place = exponent > 0 ? exponent - 1 : 0;
    std::uint64_t left = (implied | (value & ((1u << kMantissa) - 1))) << place % bits;
    for (std::size_t limb = place / bits; left > 0; ++limb, left >>= bits) {
      const auto part = static_cast<std::int32_t>(left & ((std::uint64_t{1} << bits) - 1));
      store_lane(lanes, limb * count + i, value >> 31 ? -part : part);
    }
  }
}

void decode_exact(const std::byte* lanes, std::size_t count, int world_size, int divisor, bool to_odd,
                  std::byte* floats) {
  const std::size_t limbs = limbs_of(world_size);
  const int bits = limb_bits(world_size);
  for (std::size_t i = 0; i < count; ++i) {
    const Magnitude sum = carried(lanes + i * sizeof(std::int32_t), count, limbs, bits);
    const double quotient = divided(sum, limbs, bits, static_cast<std::uint64_t>(divisor));
    const double value = sum.negative ? -quotient : quotient;
    store(floats, i, to_odd ? rounded_to_odd(value) : static_cast<float>(value));
  }
  apply_classes(lanes + limbs * count * sizeof(std::int32_t), count, floats);
}

}  // namespace railweave::ina
