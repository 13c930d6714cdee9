// SPDX-License-Identifier: Apache-2.0
#include "ports/udp_run.hpp"

#include <cstring>

#include "core/checksum.hpp"
#include "core/segments.hpp"

namespace railweave::ports {

namespace {

constexpr std::size_t kIp = kEthernetSize;
constexpr std::size_t kUdp = kIp + kIpv4Size;
constexpr std::uint16_t kRocePort = 4791;

bool same(Bytes a, Bytes b, std::size_t from, std::size_t to) {
  return std::memcmp(&a[from], &b[from], to - from) == 0;
}

bool has_checksum(Bytes packet) { return load_be<std::uint16_t>(&packet[kUdp + kUdpChecksum]) != 0; }

/// Whether both are those that the kernel would write; UDP's may be missing.
bool checksums_right(Bytes packet) {
  const Bytes ip = packet.subspan(kIp, kIpv4Size);
  // All ones mean the same as zero, but the kernel writes zero.
  const bool all_ones = load_be<std::uint16_t>(&ip[kIpv4Checksum]) == 0xffff;
  if (all_ones || !checksum_right(ip)) return false;
  if (!has_checksum(packet)) return true;
  const Bytes datagram = packet.subspan(kUdp);
  const std::uint64_t pseudo = sum_pseudo_header(ip.subspan(kIpv4Addresses, 8), kProtocolUdp,
                                                 static_cast<std::uint32_t>(datagram.size()));
  return fold(pseudo + sum_words(datagram)) == 0xffff;
}

/// Plain UDP in IPv4, no fragment, with neither a trailer nor an empty payload.
bool plain(Bytes packet) {
  const auto headers = locate_headers(packet);
  return headers && headers->plain_udp() && packet.size() > headers->payload &&
         (load_be<std::uint16_t>(&packet[kIp + kIpv4Fragment]) & kFragmentMask) == 0 &&
         load_be<std::uint16_t>(&packet[kIp + kIpv4Length]) == packet.size() - kIp &&
         load_be<std::uint16_t>(&packet[kUdp + kUdpLength]) == packet.size() - kUdp;
}

/// Everything but lengths, ids and checksums, and whether there is a UDP checksum at all.
bool same_flow(Bytes head, Bytes packet) {
  return same(head, packet, 0, kIp + kIpv4Length) &&
         same(head, packet, kIp + kIpv4Fragment, kIp + kIpv4Checksum) &&
         same(head, packet, kIp + kIpv4Addresses, kUdp + kUdpLength) &&
         has_checksum(head) == has_checksum(packet);
}

/// Whether the packet's id is of no use to a receiver.
bool id_is_free(Bytes packet) {
  const bool atomic = (load_be<std::uint16_t>(&packet[kIp + kIpv4Fragment]) & kDontFragment) != 0;
  return atomic && load_be<std::uint16_t>(&packet[kUdp + kUdpDestination]) != kRocePort;
}

bool id_follows(Bytes head, Bytes packet, std::size_t distance) {
  const auto expected = load_be<std::uint16_t>(&head[kIp + kIpv4Id]) + distance;
  return load_be<std::uint16_t>(&packet[kIp + kIpv4Id]) == static_cast<std::uint16_t>(expected);
}

}  // namespace

void UdpRun::start(Bytes packet) {
  packets_ = 1;
  renumbered_ = 0;
  size_ = packet.size() - kIp;
  open_ = size_ < max_size_ && plain(packet) && checksums_right(packet);
  without_checksum_ = open_ && !has_checksum(packet);
  if (exact_ && without_checksum_) open_ = false;
  payload_ = open_ ? packet.size() - kHeaderSize : 0;
}

bool UdpRun::join(Bytes head, Bytes packet) {
  if (!open_ || packet.size() > payload_ + kHeaderSize || !plain(packet)) return false;
  const std::size_t payload = packet.size() - kHeaderSize;
  const bool follows = id_follows(head, packet, packets_);
  if (size_ + payload > max_size_ || !same_flow(head, packet) ||
      !(follows || (!exact_ && id_is_free(packet))) || !checksums_right(packet)) {
    return false;
  }
  if (!follows) ++renumbered_;
  size_ += payload;
  ++packets_;
  open_ = payload == payload_;
  return true;
}

Offload UdpRun::seal(MutableBytes frame) const { return make_super_packet(frame, payload_); }

}  // namespace railweave::ports
