// SPDX-License-Identifier: Apache-2.0
// The few offsets in Ethernet, IP, UDP and TCP headers that packet I/O must know.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railweave::ports {

inline constexpr std::size_t kEthernetSize = 14;
inline constexpr std::size_t kVlanTagSize = 4;
inline constexpr std::size_t kIpv4Size = 20;  // without options
inline constexpr std::size_t kIpv6Size = 40;
inline constexpr std::size_t kUdpSize = 8;
inline constexpr std::size_t kTcpSize = 20;  // without options
inline constexpr std::size_t kMaxIpSize = 65535;

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
inline constexpr std::size_t kIpv4Protocol = 9;
inline constexpr std::size_t kIpv4Checksum = 10;
inline constexpr std::size_t kIpv4Addresses = 12;
inline constexpr std::uint16_t kDontFragment = 0x4000;

// Offsets inside the IPv6 header.
inline constexpr std::size_t kIpv6Length = 4;
inline constexpr std::size_t kIpv6NextHeader = 6;
inline constexpr std::size_t kIpv6Addresses = 8;

// Offsets inside the UDP and TCP headers.
inline constexpr std::size_t kUdpLength = 4;
inline constexpr std::size_t kUdpChecksum = 6;
inline constexpr std::size_t kTcpSequence = 4;
inline constexpr std::size_t kTcpDataOffset = 12;
inline constexpr std::size_t kTcpFlags = 13;
inline constexpr std::size_t kTcpChecksum = 16;
inline constexpr std::uint8_t kTcpFin = 0x01;
inline constexpr std::uint8_t kTcpPush = 0x08;
inline constexpr std::uint8_t kTcpCwr = 0x80;

}  // namespace railweave::ports
