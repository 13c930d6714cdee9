// SPDX-License-Identifier: Apache-2.0
// Floats as fixed point with one exponent per chunk, so that a switch that adds int32 can add them.
//
// With n ranks, let h = headroom_bits(n), and let e be the largest exponent in the chunk on any rank. A lane
// is round-half-even(x * 2^(30 - h - e)). A sum of n lanes is the result in units of 2^(e + h - 30). It
// cannot overflow, and does not depend on the order of its terms. Each rank errs by at most half a unit, so
// |sum - exact| <= n/2 * 2^(e + h - 30). Rounding the sum to its type adds at most half an ulp of the result.
// Values of float16 and bfloat16 come as float32. Their results are float32 rounded to odd, so that they are
// rounded once.
//
// Memory of the caller is given as bytes and may be unaligned. Lanes are in network order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railweave::ina {

/// IEEE's biased exponents that a chunk can have. Denormals count as exponent 1, whose units they share.
inline constexpr int kMinExponent = 1;
inline constexpr int kMaxExponent = 254;
inline constexpr int kExponentBias = 127;

/// The most ranks, because class counts have 10 bits each.
inline constexpr int kMaxWorldSize = 1023;

/// Bits that a lane leaves free so that `world_size` of them cannot overflow int32: ceil(log2 n). Above 128
/// ranks, it is floor(log2 n) + 1. Lanes then have fewer bits than a float's mantissa, so a value may round
/// up to the next power of two.
int headroom_bits(int world_size);

/// Properties of a chunk's floats.
struct ChunkScan {
  int exponent;  // the largest biased exponent of a finite value, kMinExponent…kMaxExponent
  bool finite;   // no NaN, no Inf
};

ChunkScan scan(const std::byte* floats, std::size_t count);

/// `exponent` is biased, as in ChunkScan; lanes saturate if it is less than the chunk's own.
void quantise(const std::byte* floats, std::size_t count, int exponent, int headroom, std::byte* lanes);

/// As `quantise`, for chunks that may hold NaN or Inf: these become 0 in `lanes`, and their class goes to
/// `classes`. Returns whether there were any.
bool quantise_finite(const std::byte* floats, std::size_t count, int exponent, int headroom, std::byte* lanes,
                     std::uint8_t* classes);

/// Sums as floats, rounded half to even; Inf where they exceed float32.
void dequantise(const std::byte* lanes, std::size_t count, int exponent, int headroom, std::byte* floats);

/// As `dequantise`, divided by `world_size`.
void dequantise_mean(const std::byte* lanes, std::size_t count, int exponent, int headroom, int world_size,
                     std::byte* floats);

/// Sums divided by `divisor` as floats rounded to odd: an inexact quotient gets a last bit of 1, at least 18
/// bits down. Rounding such a float to a type of at most 16 bits equals rounding the exact quotient once.
void dequantise_to_odd(const std::byte* lanes, std::size_t count, int exponent, int headroom, int divisor,
                       std::byte* floats);

/// The value as float32, with a last bit of 1 if any lower bit is 1; Inf where it exceeds float32.
float rounded_to_odd(double value);

/// How far a sum of `world_size` lanes may be from the exact sum before it is rounded to its type.
double error_bound(int exponent, int world_size);

/// The class of a float.
enum ValueClass : std::uint8_t { kFinite = 0, kNan = 1, kPositiveInfinity = 2, kNegativeInfinity = 3 };

/// One lane per value: a 1 in the 10-bit field of its class, so that a SUM counts the classes over all ranks.
void encode_classes(const std::uint8_t* classes, std::size_t count, std::byte* lanes);

/// Overwrites the results for which some rank had NaN or Inf by the result of IEEE addition.
void apply_classes(const std::byte* lanes, std::size_t count, std::byte* floats);

}  // namespace railweave::ina
