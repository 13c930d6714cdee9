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
constexpr int kBits = 128 - kUnit;                     // of the largest float, in that unit
constexpr int kMantissa = 23;                          // bits of a float, without the implied bit
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

/// A sum as unsigned digits: limbs of the same width, and the carry above them.
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

/// `number` in units of 2^power, cut to the bits of a double. The last bit is 1 if any lower bit is 1, or if
/// `more`. So rounding the double to a float equals rounding the exact number once.
double jammed(std::uint64_t number, bool more, int power) {
  if (const int excess = std::bit_width(number) - kDoubleBits; excess > 0) {
    more = more || (number & ((std::uint64_t{1} << excess) - 1)) != 0;
    number >>= excess;
    power += excess;
  }
  return std::ldexp(static_cast<double>(number | (more ? 1 : 0)), power);
}

/// The quotient of a sum, with the last bit as in `jammed`.
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
  return jammed(top, more || rest != 0, power);
}

/// The quotient of a number in units of 2^power, with the last bit as in `jammed`.
double divided(std::uint64_t number, int power, std::uint64_t divisor) {
  const int shift = std::countl_zero(number | 1);
  number <<= shift;
  return jammed(number / divisor, number % divisor != 0, power - shift);
}

int wide_power(int world_size) { return std::ilogb(kWideTop) - 2 * limb_bits(world_size); }

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

double wide_unit(int world_size) { return std::ldexp(1.0, wide_power(world_size)); }

bool encode_wide(const std::byte* floats, std::size_t count, int world_size, std::byte* lanes) {
  const ChunkScan found = scan(floats, count);
  const int exponent = found.exponent - kExponentBias;
  if (!found.finite || exponent >= std::ilogb(kWideTop)) return false;
  const int bits = limb_bits(world_size), power = wide_power(world_size);
  const double scale = std::ldexp(1.0, -power);
  bool whole = true;
  for (std::size_t i = 0; i < count; ++i) {
    const double scaled = load<float>(floats, i) * scale;  // exact
    const auto units = static_cast<std::int64_t>(scaled);
    whole = whole && static_cast<double>(units) == scaled;
    store_lane(lanes, i, static_cast<std::int32_t>(units & ((std::int64_t{1} << bits) - 1)));
    store_lane(lanes, count + i, static_cast<std::int32_t>(units >> bits));
  }
  return whole || exponent >= power + bits;
}

void decode_wide(const std::byte* lanes, std::size_t count, int world_size, int divisor, bool to_odd,
                 std::byte* floats) {
  const int bits = limb_bits(world_size), power = wide_power(world_size);
  const auto unit = static_cast<float>(wide_unit(world_size));
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t upper = load_lane(lanes, count + i);
    const std::int64_t sum = (upper << bits) + load_lane(lanes, i);
    if (divisor == 1 && !to_odd) {
      store(floats, i, static_cast<float>(sum) * unit);
      continue;
    }
    const auto magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
    const double quotient = divided(magnitude, power, static_cast<std::uint64_t>(divisor));
    const double value = sum < 0 ? -quotient : quotient;
    store(floats, i, to_odd ? rounded_to_odd(value) : static_cast<float>(value));
  }
}

}  // namespace railweave::ina
