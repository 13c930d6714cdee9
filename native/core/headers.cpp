// SPDX-License-Identifier: Apache-2.0
#include "core/headers.hpp"

#include "core/checksum.hpp"

namespace railweave {

std::optional<Headers> locate_headers(Bytes frame) {
  const auto byte = [frame](std::size_t offset) { return std::to_integer<std::size_t>(frame[offset]); };
  std::size_t type_at = kEthernetSize - 2;
  std::uint16_t ether_type = 0;
  for (;; type_at += kVlanTagSize) {
    if (type_at + 2 > frame.size()) return std::nullopt;
    ether_type = load_be<std::uint16_t>(&frame[type_at]);
    if (ether_type != kEtherVlan && ether_type != kEtherQinQ) [[likely]]
      break;
  }
  const std::size_t network = type_at + 2;
  const bool ipv6 = ether_type == kEtherIpv6;
  if (!ipv6 && ether_type != kEtherIpv4) return std::nullopt;
  if (network + (ipv6 ? kIpv6Size : kIpv4Size) > frame.size()) return std::nullopt;
  const std::size_t version = byte(network) >> 4;
  const std::size_t size = ipv6 ? kIpv6Size : (byte(network) & 0xf) * 4;
  if (version != (ipv6 ? 6 : 4) || size < kIpv4Size) return std::nullopt;
  const auto protocol = static_cast<std::uint8_t>(byte(network + (ipv6 ? kIpv6NextHeader : kIpv4Protocol)));
  const std::size_t transport = network + size;
  std::size_t payload = transport + kUdpSize;
  if (protocol == kProtocolTcp) [[unlikely]] {
    if (transport + kTcpSize > frame.size()) return std::nullopt;
    payload = transport + (byte(transport + kTcpDataOffset) >> 4) * 4;
    if (payload < transport + kTcpSize) return std::nullopt;
  } else if (protocol != kProtocolUdp) {
    return std::nullopt;
  }
  if (payload > frame.size() || payload > kMaxIpSize) return std::nullopt;
  return Headers{.network = static_cast<std::uint16_t>(network),
                 .transport = static_cast<std::uint16_t>(transport),
                 .payload = static_cast<std::uint16_t>(payload),
                 .protocol = protocol,
                 .ipv6 = ipv6};
}

void store_ipv4_checksum(std::byte* ip, std::size_t size) {
  store_raw16(ip + kIpv4Checksum, 0);
  store_raw16(ip + kIpv4Checksum, checksum(sum_few_words({ip, size})));
}

}  // namespace railweave
