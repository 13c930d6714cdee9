// SPDX-License-Identifier: Apache-2.0
#include "ina/packet.hpp"

namespace railweave::ina {

void encode(const Header& header, std::byte* to) {
  to[0] = static_cast<std::byte>(header.version << 4 | (header.kind & 0xf));
  to[1] = static_cast<std::byte>(header.op);
  store_be(to + 2, header.group);
  to[4] = static_cast<std::byte>(header.child);
  to[5] = static_cast<std::byte>(header.flags);
  store_be(to + 6, header.slot);
  store_be(to + 8, header.round);
  store_be(to + 12, header.mark);
}

Header decode(const std::byte* from) {
  const auto first = static_cast<std::uint8_t>(from[0]);
  return {.version = static_cast<std::uint8_t>(first >> 4),
          .kind = static_cast<std::uint8_t>(first & 0xf),
          .op = static_cast<std::uint8_t>(from[1]),
          .group = load_be<std::uint16_t>(from + 2),
          .child = static_cast<std::uint8_t>(from[4]),
          .flags = static_cast<std::uint8_t>(from[5]),
          .slot = load_be<std::uint16_t>(from + 6),
          .round = load_be<std::uint32_t>(from + 8),
          .mark = load_be<std::uint32_t>(from + 12)};
}

}  // namespace railweave::ina
