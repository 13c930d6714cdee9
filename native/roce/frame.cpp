// SPDX-License-Identifier: Apache-2.0
#include "roce/frame.hpp"

#include <cstring>

#include "core/checksum.hpp"
#include "core/crc32.hpp"
#include "core/segments.hpp"

namespace railweave::roce {
namespace {

constexpr std::uint8_t kTtl = 64;

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
  masked[ip + kIpv4Ttl] = ones;
  masked[ip + kIpv4Checksum] = masked[ip + kIpv4Checksum + 1] = ones;
  masked[udp + kUdpChecksum] = masked[udp + kUdpChecksum + 1] = ones;
  masked[bth + 4] = ones;  // FECN, BECN, reserved
  const std::uint32_t head = crc32_update(kCrcStart, masked);
  return ~crc32_update(head, transport.subspan(kBthSize));
}

NetworkHeader network_header(const Path& path, std::uint16_t ip_id, std::size_t transport_size) {
  NetworkHeader header{};
  const std::size_t udp_length = kUdpSize + transport_size + kIcrcSize;
  std::byte* ip = header.data();
  store_be(ip, kIpv4PlainHeader);
  store_be(ip + kIpv4Id, ip_id);
  store_be(ip + kIpv4Fragment, kDontFragment);
  store_be(ip + kIpv4Ttl, kTtl);
  store_be(ip + kIpv4Protocol, kProtocolUdp);
  store_be(ip + kIpv4Addresses, path.source);
  store_be(ip + kIpv4Addresses + 4, path.peer);
  store_be(ip + kIpv4Length, static_cast<std::uint16_t>(kIpv4Size + udp_length));
  std::byte* udp = ip + kIpv4Size;
  store_be(udp, path.source_port);
  store_be(udp + kUdpDestination, kUdpPort);
  store_be(udp + kUdpLength, static_cast<std::uint16_t>(udp_length));
  return header;
}

void write_headers(const Path& path, const NetworkHeader& network, MutableBytes frame) {
  std::byte* to = frame.data();
  std::memcpy(to, path.peer_mac.data(), 6);
  std::memcpy(to + 6, path.source_mac.data(), 6);
  store_be(to + kEthernetSize - 2, kEtherIpv4);
  std::memcpy(to + kEthernetSize, network.data(), network.size());
  store_ipv4_checksum(to + kEthernetSize);
}

std::size_t seal(const Path& path, std::uint16_t ip_id, MutableBytes frame, std::size_t transport_size) {
  const NetworkHeader network = network_header(path, ip_id, transport_size);
  write_headers(path, network, frame);
  std::byte* transport = frame.data() + kFrameHeaderSize;
  store_le<std::uint32_t>(transport + transport_size, icrc(network, {transport, transport_size}));
  return kFrameHeaderSize + transport_size + kIcrcSize;
}

bool Burst::takes(const Packet& packet) const {
  if (count_ == 0) return true;
  const std::size_t size = written_size(packet) + kIcrcSize;
  return open_ && size <= segment_ && size_ + size <= limit_ && count_ < kMaxSegments;
}

void Burst::append(const Packet& packet) {
  const MutableBytes to = frame_.subspan(size_);
  const std::size_t size = write(packet, to);
  const auto id = static_cast<std::uint16_t>(first_id_ + count_);
  store_le<std::uint32_t>(to.data() + size, icrc(network_header(path_, id, size), to.first(size)));
  if (count_++ == 0) segment_ = size + kIcrcSize;
  open_ = size + kIcrcSize == segment_;
  size_ += size + kIcrcSize;
}

Burst::Made Burst::close() {
  const std::size_t payload = size_ - kFrameHeaderSize;
  write_headers(path_, network_header(path_, first_id_, payload - kIcrcSize), frame_);
  return {.size = size_,
          .offload = count_ == 1 ? Offload{} : make_super_packet(frame_.first(size_), segment_)};
}

OpenedFrame open_frame(Bytes frame) {
  OpenedFrame opened;
  const auto refuse = [&opened](FrameFault fault) {
    opened.fault = fault;
    return opened;
  };
  const auto headers = locate_headers(frame);
  if (!headers || !headers->plain_udp()) return refuse(FrameFault::kNotRoce);
  const std::byte* ip = frame.data() + kEthernetSize;
  const std::byte* udp = ip + kIpv4Size;
  if ((load_be<std::uint16_t>(ip + kIpv4Fragment) & kFragmentMask) != 0 ||
      load_be<std::uint16_t>(udp + kUdpDestination) != kUdpPort) {
    return refuse(FrameFault::kNotRoce);
  }
  const std::size_t ip_length = load_be<std::uint16_t>(ip + kIpv4Length);
  const std::size_t udp_length = load_be<std::uint16_t>(udp + kUdpLength);
  if (ip_length != kIpv4Size + udp_length || frame.size() < kEthernetSize + ip_length ||
      udp_length < kUdpSize + kBthSize + kIcrcSize || !checksum_right({ip, kIpv4Size})) {
    return refuse(FrameFault::kMalformed);
  }
  opened.source = load_be<std::uint32_t>(ip + kIpv4Addresses);
  opened.destination = load_be<std::uint32_t>(ip + kIpv4Addresses + 4);
  std::memcpy(opened.source_mac.data(), frame.data() + 6, 6);
  opened.transport = frame.subspan(kFrameHeaderSize, udp_length - kUdpSize - kIcrcSize);
  const std::byte* received = opened.transport.data() + opened.transport.size();
  if (load_le<std::uint32_t>(received) != icrc({ip, kIpv4Size + kUdpSize}, opened.transport))
    return refuse(FrameFault::kBadIcrc);
  return opened;
}

}  // namespace railweave::roce
