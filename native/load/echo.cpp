// SPDX-License-Identifier: Apache-2.0
#include "load/echo.hpp"

#include <algorithm>

#include "core/headers.hpp"
#include "ina/packet.hpp"

namespace railweave::load {

void Echo::process(ports::Port& port, MutableBytes packet, std::uint64_t /*now_us*/) {
  const auto headers = locate_headers(packet);
  if (!headers || !headers->plain_udp() || packet.size() == headers->payload) return;
  constexpr std::size_t kIp = kEthernetSize, kUdp = kIp + kIpv4Size;
  const auto swap = [&](std::size_t at, std::size_t size) {
    std::swap_ranges(&packet[at], &packet[at] + size, &packet[at + size]);
  };
  swap(0, 6);
  swap(kIp + kIpv4Addresses, 4);
  swap(kUdp, 2);
  store_be<std::uint16_t>(&packet[kUdp + kUdpChecksum], 0);  // no checksum, as in results
  packet[kUdpHeaders] |= static_cast<std::byte>(ina::Kind::kResult);
  port.emit(engine::Pieces(packet));
}

}  // namespace railweave::load
