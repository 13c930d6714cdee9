// SPDX-License-Identifier: Apache-2.0
#include "roce/frame.hpp"

#include <cstring>

#include "roce/crc32.hpp"

namespace railweave::roce {
namespace {

constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
constexpr std::uint8_t kVersionAndLength = 0x45;  // IPv4, five words: RoCEv2 knows no options
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint8_t kTtl = 64;
constexpr std::uint8_t kProtocolUdp = 17;

// In the byte order of memory: a sum of ones' complement is the same in either.
std::uint16_t ipv4_checksum(const std::byte* header) {
  std::array<std::uint32_t, kIpv4Size / 4> words;
  std::memcpy(words.data(), header, kIpv4Size);
  std::uint64_t sum = 0;
  for (const std::uint32_t word : words) sum += word;
  sum = (sum & 0xffff'ffff) + (sum >> 32);
  sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

}  // namespace

std::uint32_t icrc(Bytes network, Bytes transport) {
  // Eight bytes of ones stand for the link header that RoCE has not got.
  std::array<std::byte, 8 + kIpv4Size + kUdpSize + kBthSize> masked;
  constexpr std::size_t ip = 8, udp = ip + kIpv4Size, bth = udp + kUdpSize;
  std::memset(masked.data(), 0xff, 8);
  std::memcpy(&masked[ip], network.data(), kIpv4Size + kUdpSize);
  std::memcpy(&masked[bth], transport.data(), kBthSize);
  const std::byte ones{0xff};
  masked[ip + 1] = ones;  // TOS
  masked[ip + 8] = ones;  // TTL
  masked[ip + 10] = masked[ip + 11] = ones;
  masked[udp + 6] = masked[udp + 7] = ones;
  masked[bth + 4] = ones;  // FECN, BECN, reserved
  const std::uint32_t head = crc32_update(kCrcStart, masked);
  return ~crc32_update(head, transport.subspan(kBthSize));
}

void set_ipv4_length(std::byte* ip, std::size_t length) {
  store_be(ip + 2, static_cast<std::uint16_t>(length));
  store_be(ip + 10, std::uint16_t{0});
  const std::uint16_t checksum = ipv4_checksum(ip);
  std::memcpy(ip + 10, &checksum, sizeof checksum);
}

NetworkHeader network_header(const Path& path, std::uint16_t ip_id, std::size_t transport_size) {
  NetworkHeader header{};
  const std::size_t udp_length = kUdpSize + transport_size + kIcrcSize;
  std::byte* ip = header.data();
  store_be(ip, kVersionAndLength);
  store_be(ip + 4, ip_id);
  store_be(ip + 6, kDontFragment);
  store_be(ip + 8, kTtl);
  store_be(ip + 9, kProtocolUdp);
  store_be(ip + 12, path.source);
  store_be(ip + 16, path.peer);
  store_be(ip + 2, static_cast<std::uint16_t>(kIpv4Size + udp_length));
  std::byte* udp = ip + kIpv4Size;
  store_be(udp, path.source_port);
  store_be(udp + 2, kUdpPort);
  store_be(udp + 4, static_cast<std::uint16_t>(udp_length));
  return header;
}

void write_ethernet(const Path& path, std::byte* to) {
  std::memcpy(to, path.peer_mac.data(), 6);
  std::memcpy(to + 6, path.source_mac.data(), 6);
  store_be(to + 12, kEtherTypeIpv4);
}

std::size_t seal(const Path& path, std::uint16_t ip_id, MutableBytes frame, std::size_t transport_size) {
  const NetworkHeader network = network_header(path, ip_id, transport_size);
  write_ethernet(path, frame.data());
  std::memcpy(frame.data() + kEthernetSize, network.data(), network.size());
  set_ipv4_length(frame.data() + kEthernetSize, network.size() + transport_size + kIcrcSize);
  std::byte* transport = frame.data() + kFrameHeaderSize;
  const std::uint32_t crc = icrc(network, {transport, transport_size});
  std::memcpy(transport + transport_size, &crc, kIcrcSize);  // the one field that is little-endian
  return kFrameHeaderSize + transport_size + kIcrcSize;
}

OpenedFrame open_frame(Bytes frame) {
  OpenedFrame opened;
  const auto refuse = [&opened](FrameFault fault) {
    opened.fault = fault;
    return opened;
  };
  if (frame.size() < kFrameHeaderSize) return refuse(FrameFault::kNotRoce);
  const std::byte* ip = frame.data() + kEthernetSize;
  const std::byte* udp = ip + kIpv4Size;
  if (load_be<std::uint16_t>(frame.data() + 12) != kEtherTypeIpv4 ||
      load_be<std::uint8_t>(ip) != kVersionAndLength || load_be<std::uint8_t>(ip + 9) != kProtocolUdp ||
      (load_be<std::uint16_t>(ip + 6) & 0x3fff) != 0 || load_be<std::uint16_t>(udp + 2) != kUdpPort) {
    return refuse(FrameFault::kNotRoce);
  }
  const std::size_t ip_length = load_be<std::uint16_t>(ip + 2);
  const std::size_t udp_length = load_be<std::uint16_t>(udp + 4);
  if (ip_length != kIpv4Size + udp_length || frame.size() < kEthernetSize + ip_length ||
      udp_length < kUdpSize + kBthSize + kIcrcSize || ipv4_checksum(ip) != 0) {
    return refuse(FrameFault::kMalformed);
  }
  opened.source = load_be<std::uint32_t>(ip + 12);
  opened.destination = load_be<std::uint32_t>(ip + 16);
  std::memcpy(opened.source_mac.data(), frame.data() + 6, 6);
  opened.transport = frame.subspan(kFrameHeaderSize, udp_length - kUdpSize - kIcrcSize);
  std::uint32_t received;
  std::memcpy(&received, opened.transport.data() + opened.transport.size(), kIcrcSize);
  if (received != icrc({ip, kIpv4Size + kUdpSize}, opened.transport)) return refuse(FrameFault::kBadIcrc);
  return opened;
}

}  // namespace railweave::roce
