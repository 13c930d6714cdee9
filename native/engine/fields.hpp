// SPDX-License-Identifier: Apache-2.0
// Fields of up to 64 bits in headers, most significant bit first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.hpp"

namespace railweave::engine {

inline std::uint64_t low_bits(std::uint64_t width) { return ~0ull >> (64 - width); }

/// The place of a field: `bytes` bytes from `at`, the lowest bit at `shift`. The instruction names eight
/// bytes from `offset` (and, as `place`, width and shift in them). In compiled code, where these are
/// constants, only the bytes of the field are touched: a load of more bytes than the last store wrote waits
/// until that store has reached the cache. The interpreter touches all eight bytes.
struct FieldBytes {
  std::uint32_t at, bytes, shift, width;

  [[gnu::always_inline]] FieldBytes(std::uint32_t offset, std::uint32_t place)
      : at(offset), bytes(8), shift(place & 0xff), width(place >> 8) {
    if (!__builtin_constant_p(place)) return;
    const std::uint32_t before = (64 - shift - width) / 8, behind = shift / 8;
    at += before;
    bytes -= before + behind;
    shift -= 8 * behind;
  }
  std::uint64_t mask() const { return low_bits(width) << shift; }
  bool whole_bytes() const { return width == 8 * bytes; }
};

/// Splits `bytes` bytes into integers. Calls work(offset, integer of the type, bits behind it) for each.
template <typename Work>
[[gnu::always_inline]] inline void in_integers(std::uint32_t bytes, const Work& work) {
  std::uint32_t at = 0;
  const auto step = [&](auto integer) {
    if ((bytes - at) < sizeof integer) return;
    work(at, integer, 8 * (bytes - at - static_cast<std::uint32_t>(sizeof integer)));
    at += static_cast<std::uint32_t>(sizeof integer);
  };
  step(std::uint64_t{});
  step(std::uint32_t{});
  step(std::uint16_t{});
  step(std::uint8_t{});
}

[[gnu::always_inline]] inline std::uint64_t load_bytes(const std::byte* from, std::uint32_t bytes) {
  std::uint64_t value = 0;
  in_integers(bytes, [&](std::uint32_t at, auto integer, std::uint32_t behind) {
    value |= std::uint64_t{load_be<decltype(integer)>(from + at)} << behind;
  });
  return value;
}

[[gnu::always_inline]] inline void store_bytes(std::byte* to, std::uint32_t bytes, std::uint64_t value) {
  in_integers(bytes, [&](std::uint32_t at, auto integer, std::uint32_t behind) {
    store_be(to + at, static_cast<decltype(integer)>(value >> behind));
  });
}

[[gnu::always_inline]] inline std::uint64_t load_field(const std::byte* phv, std::uint32_t offset,
                                                       std::uint32_t place) {
  const FieldBytes field(offset, place);
  return (load_bytes(phv + field.at, field.bytes) >> field.shift) & low_bits(field.width);
}

[[gnu::always_inline]] inline void store_field(std::byte* phv, std::uint32_t offset, std::uint32_t place,
                                               std::uint64_t value) {
  const FieldBytes field(offset, place);
  const std::uint64_t others =
      field.whole_bytes() ? 0 : load_bytes(phv + field.at, field.bytes) & ~field.mask();
  store_bytes(phv + field.at, field.bytes, others | ((value << field.shift) & field.mask()));
}

}  // namespace railweave::engine
