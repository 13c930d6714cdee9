// SPDX-License-Identifier: Apache-2.0
// Two's complement integers of a fixed number of 64-bit limbs, least significant first. The lowering picks
// enough limbs for the widest value of a program, so that results are those of unbounded integers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railweave::engine::wide {

using Limb = std::uint64_t;
__extension__ using DoubleLimb = unsigned __int128;

inline bool negative(const Limb* a, std::size_t n) { return a[n - 1] >> 63; }

inline void set(Limb* to, std::size_t n, Limb low, bool sign) {
  to[0] = low;
  for (std::size_t i = 1; i < n; ++i) to[i] = sign ? ~Limb{0} : 0;
}

inline bool is_zero(const Limb* a, std::size_t n) {
  Limb any = 0;
  for (std::size_t i = 0; i < n; ++i) any |= a[i];
  return any == 0;
}

/// to = a + b + carry, where b is inverted first if `subtract` (then carry is 1: a - b).
inline void add(Limb* to, const Limb* a, const Limb* b, std::size_t n, bool subtract) {
  DoubleLimb carry = subtract ? 1 : 0;
  for (std::size_t i = 0; i < n; ++i) {
    carry += DoubleLimb{a[i]} + (subtract ? ~b[i] : b[i]);
    to[i] = static_cast<Limb>(carry);
    carry >>= 64;
  }
}

/// `to` must not overlap the factors.
inline void multiply(Limb* to, const Limb* a, const Limb* b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] = 0;
  for (std::size_t i = 0; i < n; ++i) {
    DoubleLimb carry = 0;
    for (std::size_t j = 0; i + j < n; ++j) {
      carry += DoubleLimb{a[i]} * b[j] + to[i + j];
      to[i + j] = static_cast<Limb>(carry);
      carry >>= 64;
    }
  }
}

/// -1, 0 or 1, signed.
inline int compare(const Limb* a, const Limb* b, std::size_t n) {
  if (negative(a, n) != negative(b, n)) return negative(a, n) ? -1 : 1;
  for (std::size_t i = n; i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

/// In place is allowed. A shift by all bits or more gives 0.
inline void shift_left(Limb* to, const Limb* a, std::uint64_t count, std::size_t n) {
  const std::uint64_t limbs = count / 64, bits = count % 64;
  for (std::size_t i = n; i-- > 0;) {
    const Limb high = i >= limbs ? a[i - limbs] : 0;
    const Limb low = i >= limbs + 1 ? a[i - limbs - 1] : 0;
    to[i] = bits ? (high << bits) | (low >> (64 - bits)) : high;
  }
}

/// Arithmetic: the sign comes in from the left.
inline void shift_right(Limb* to, const Limb* a, std::uint64_t count, std::size_t n) {
  const Limb fill = negative(a, n) ? ~Limb{0} : 0;
  const std::uint64_t limbs = count / 64, bits = count % 64;
  for (std::size_t i = 0; i < n; ++i) {
    const Limb low = limbs < n - i ? a[i + limbs] : fill;
    const Limb high = limbs < n - i && limbs + 1 < n - i ? a[i + limbs + 1] : fill;
    to[i] = bits ? (low >> bits) | (high << (64 - bits)) : low;
  }
}

/// Keeps the low `width` bits and fills the rest with zeros, or with copies of the top kept bit.
inline void extend(Limb* to, const Limb* a, std::uint64_t width, bool sign, std::size_t n) {
  const std::uint64_t top = width - 1;
  const bool fill = sign && width >= 1 && top / 64 < n && ((a[top / 64] >> (top % 64)) & 1);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t from = 64 * i;
    const Limb kept = width >= from + 64 ? ~Limb{0} : width > from ? ~Limb{0} >> (from + 64 - width) : 0;
    to[i] = (a[i] & kept) | (fill ? ~kept : 0);
  }
}

/// Clamps to [0, 2^width - 1], or to [-2^(width-1), 2^(width-1) - 1].
inline void saturate(Limb* to, const Limb* a, std::uint64_t width, bool sign, std::size_t n) {
  const std::uint64_t value_bits = sign ? width - 1 : width;
  const bool below = negative(a, n);
  bool fits = true;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t from = 64 * i;
    const Limb outside = value_bits >= from + 64 ? 0
                         : value_bits > from     ? ~Limb{0} << (value_bits - from)
                                                 : ~Limb{0};
    fits &= ((below && sign ? ~a[i] : a[i]) & outside) == 0;
  }
  if (below && !sign) return set(to, n, 0, false);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t from = 64 * i;
    const Limb inside = value_bits >= from + 64 ? ~Limb{0}
                        : value_bits > from     ? ~(~Limb{0} << (value_bits - from))
                                                : 0;
    to[i] = fits ? a[i] : below ? ~inside : inside;
  }
}

/// Long division of non-negative integers; by zero it gives zero. `quotient` and `rest` overlap nothing.
inline void divide(Limb* quotient, Limb* rest, const Limb* a, const Limb* b, std::size_t n) {
  set(quotient, n, 0, false);
  set(rest, n, 0, false);
  if (is_zero(b, n)) return;
  for (std::size_t bit = 64 * n; bit-- > 0;) {
    shift_left(rest, rest, 1, n);
    rest[0] |= (a[bit / 64] >> (bit % 64)) & 1;
    if (compare(rest, b, n) >= 0) {
      add(rest, rest, b, n, true);
      quotient[bit / 64] |= Limb{1} << (bit % 64);
    }
  }
}

/// Reads and writes `width` bits, most significant first, at a bit position of a byte string.
inline void load_bits(Limb* to, std::size_t n, const unsigned char* bytes, std::uint64_t position,
                      std::uint64_t width) {
  set(to, n, 0, false);
  for (std::uint64_t i = 0; i < width;) {  // from the least significant end
    const std::uint64_t last = position + width - 1 - i;
    const unsigned in_byte = 7 - last % 8;  // bits of this byte below the field
    const std::uint64_t available = 8 - in_byte;
    const std::uint64_t take = available < width - i ? available : width - i;
    const Limb piece = (bytes[last / 8] >> in_byte) & ((1u << take) - 1);
    if (i / 64 < n) to[i / 64] |= piece << (i % 64);
    if (i % 64 + take > 64 && i / 64 + 1 < n) to[i / 64 + 1] |= piece >> (64 - i % 64);
    i += take;
  }
}

inline void store_bits(const Limb* from, std::size_t n, unsigned char* bytes, std::uint64_t position,
                       std::uint64_t width) {
  for (std::uint64_t i = 0; i < width;) {
    const std::uint64_t last = position + width - 1 - i;
    const unsigned in_byte = 7 - last % 8;
    const std::uint64_t available = 8 - in_byte;
    const std::uint64_t take = available < width - i ? available : width - i;
    Limb piece = i / 64 < n ? from[i / 64] >> (i % 64) : 0;
    if (i % 64 + take > 64 && i / 64 + 1 < n) piece |= from[i / 64 + 1] << (64 - i % 64);
    const unsigned kept = ((1u << take) - 1) << in_byte;
    bytes[last / 8] = static_cast<unsigned char>((bytes[last / 8] & ~kept) | ((piece << in_byte) & kept));
    i += take;
  }
}

}  // namespace railweave::engine::wide
