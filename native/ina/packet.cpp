// SPDX-License-Identifier: Apache-2.0
#include "ina/packet.hpp"

namespace railweave::ina {

void encode(const Header& header, std::byte* to) {
  store_fields(to, static_cast<std::uint8_t>(header.version << 4 | (header.kind & 0xf)), header.op,
               header.group, header.child, header.flags, header.slot, header.round, header.mark);
}

Header decode(const std::byte* from) {
  Header header;
  load_fields(from, header.kind, header.op, header.group, header.child, header.flags, header.slot,
              header.round, header.mark);
  header.version = header.kind >> 4;
  header.kind &= 0xf;
  return header;
}

}  // namespace railweave::ina
