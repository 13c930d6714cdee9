// SPDX-License-Identifier: Apache-2.0
// Sums of few floats, so that each float can have several lanes. They need no exchange of exponents.
//
// Exact: a finite float32 is an integer in units of 2^-149, of at most 277 bits. It is cut into limbs of 31 -
// h bits, h = headroom_bits(n). Each limb is a lane with the float's sign, so n of these lanes cannot
// overflow. A switch adds them limb by limb (a superaccumulator, as in Collange et al., "Numerical
// reproducibility for the parallel reduction on multi- and many-core architectures", 2015). One more lane
// counts NaN and Inf. Lanes go limb by limb, lowest first, each for all values. The counts come last.
//
// Wide: fixed point in two such limbs, the upper one with the sign. The unit is the same for all calls. All
// values are below kWideTop. Either all are multiples of the unit, or the largest is large enough. Then
// truncation to the unit errs at most as much as fixed point with the chunk's exponent may (fixed_point.hpp).
#pragma once

#include <cstddef>

namespace railweave::ina {

/// Lanes of one value in a sum over `world_size` ranks.
std::size_t exact_lanes(int world_size);

/// Writes exact_lanes(world_size) * count lanes. Memory of the caller may be unaligned.
void encode_exact(const std::byte* floats, std::size_t count, int world_size, std::byte* lanes);

/// The sums, divided by `divisor` and rounded once: half to even, or, with `to_odd`, as
/// `dequantise_to_odd` does.
void decode_exact(const std::byte* lanes, std::size_t count, int world_size, int divisor, bool to_odd,
                  std::byte* floats);

inline constexpr std::size_t kWideLanes = 2;  // of a value
inline constexpr double kWideTop = 256;

/// The unit to which values are truncated.
double wide_unit(int world_size);

/// Writes kWideLanes * count lanes, limb by limb, lowest first. Returns false if they do not hold the values.
bool encode_wide(const std::byte* floats, std::size_t count, int world_size, std::byte* lanes);

/// As `decode_exact`.
void decode_wide(const std::byte* lanes, std::size_t count, int world_size, int divisor, bool to_odd,
                 std::byte* floats);

}  // namespace railweave::ina
