// SPDX-License-Identifier: Apache-2.0
// Ethernet, IP, UDP and TCP headers, as far as packet I/O must know them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/bytes.hpp"

namespace railweave {

inline constexpr std::size_t kEthernetSize = 14;
inline constexpr std::size_t kVlanTagSize = 4;
inline constexpr std::size_t kIpv4Size = 20;  // without options
inline constexpr std::size_t kIpv6Size = 40;
inline constexpr std::size_t kUdpSize = 8;
inline constexpr std::size_t kTcpSize = 20;  // without options
inline constexpr std::size_t kMaxIpSize = 65535;
inline constexpr std::size_t kIpUdpHeaders = kIpv4Size + kUdpSize;
inline constexpr std::uint64_t kUdpHeaders = kEthernetSize + kIpUdpHeaders;  // around a datagram

inline constexpr std::uint16_t kEtherIpv4 = 0x0800;
inline constexpr std::uint16_t kEtherIpv6 = 0x86dd;
inline constexpr std::uint16_t kEtherVlan = 0x8100;
inline constexpr std::uint16_t kEtherQinQ = 0x88a8;
inline constexpr std::uint8_t kProtocolTcp = 6;
inline constexpr std::uint8_t kProtocolUdp = 17;

// Offsets inside the IPv4 header.
inline constexpr std::size_t kIpv4Length = 2;
inline constexpr std::size_t kIpv4Id = 4;
inline constexpr std::size_t kIpv4Fragment = 6;
inline constexpr std::size_t kIpv4Ttl = 8;
inline constexpr std::size_t kIpv4Protocol = 9;
inline constexpr std::size_t kIpv4Checksum = 10;
inline constexpr std::size_t kIpv4Addresses = 12;
inline constexpr std::uint16_t kDontFragment = 0x4000;
inline constexpr std::uint16_t kFragmentMask = 0x3fff;  // more fragments, and the offset
inline constexpr std::uint8_t kIpv4PlainHeader = 0x45;  // version, and five words: no options

// Offsets inside the IPv6 header.
inline constexpr std::size_t kIpv6Length = 4;
inline constexpr std::size_t kIpv6NextHeader = 6;
inline constexpr std::size_t kIpv6Addresses = 8;

// Offsets inside the UDP and TCP headers.
inline constexpr std::size_t kUdpDestination = 2;
inline constexpr std::size_t kUdpLength = 4;
inline constexpr std::size_t kUdpChecksum = 6;
inline constexpr std::size_t kTcpSequence = 4;
inline constexpr std::size_t kTcpDataOffset = 12;
inline constexpr std::size_t kTcpFlags = 13;
inline constexpr std::size_t kTcpChecksum = 16;
inline constexpr std::uint8_t kTcpFin = 0x01;
inline constexpr std::uint8_t kTcpPush = 0x08;
inline constexpr std::uint8_t kTcpCwr = 0x80;

/// Where the headers of a frame are, as offsets; all of them lie inside it.
struct Headers {
  std::uint16_t network;    // the IP header, behind Ethernet and any VLAN tags
  std::uint16_t transport;  // the UDP or TCP header
  std::uint16_t payload;
  std::uint8_t protocol;  // kProtocolUdp or kProtocolTcp
  bool ipv6;

  /// UDP in IPv4 without VLAN tags and options.
  bool plain_udp() const {
    return !ipv6 && protocol == kProtocolUdp && payload == kEthernetSize + kIpv4Size + kUdpSize;
  }
};

/// Nothing for a frame that is too short, or is neither UDP nor TCP right behind IPv4 or IPv6.
std::optional<Headers> locate_headers(Bytes frame);

/// Sets the checksum of the IPv4 header of `size` bytes at `ip`.
void store_ipv4_checksum(std::byte* ip, std::size_t size = kIpv4Size);

}  // namespace railweave
