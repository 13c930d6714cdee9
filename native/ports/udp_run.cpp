// SPDX-License-Identifier: Apache-2.0
#include "ports/udp_run.hpp"

#include <algorithm>
#include <cstring>

#include "ports/checksum.hpp"

namespace railweave::ports {

namespace {

constexpr std::size_t kIp = kEthernetSize;
constexpr std::size_t kUdp = kIp + kIpv4Size;
constexpr std::uint8_t kVersionAndSize = 0x45;  // IPv4 without options
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
  if (all_ones || fold(sum_words(ip)) != 0xffff) return false;
  if (!has_checksum(packet)) return true;
  const Bytes datagram = packet.subspan(kUdp);
  const std::uint64_t pseudo = sum_pseudo_header(ip.subspan(kIpv4Addresses, 8), kProtocolUdp,
                                                 static_cast<std::uint32_t>(datagram.size()));
  return fold(pseudo + sum_words(datagram)) == 0xffff;
}

/// Plain UDP in IPv4: no VLAN tag, option, fragment, trailer or empty payload.
bool plain(Bytes packet) {
  if (packet.size() <= UdpRun::kHeaderSize) return false;
  const auto fragment = load_be<std::uint16_t>(&packet[kIp + kIpv4Fragment]);
  return load_be<std::uint16_t>(&packet[kIp - 2]) == kEtherIpv4 &&
         std::to_integer<std::uint8_t>(packet[kIp]) == kVersionAndSize && (fragment & ~kDontFragment) == 0 &&
         std::to_integer<std::uint8_t>(packet[kIp + kIpv4Protocol]) == kProtocolUdp &&
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
  return atomic && load_be<std::uint16_t>(&packet[kUdp + 2]) != kRocePort;
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

void UdpRun::seal(MutableBytes frame, Offload& offload) const {
  std::byte* ip = &frame[kIp];
  std::byte* udp = &frame[kUdp];
  store_be(ip + kIpv4Length, static_cast<std::uint16_t>(size_));
  store_raw16(ip + kIpv4Checksum, 0);
  store_raw16(ip + kIpv4Checksum, checksum(sum_words({ip, kIpv4Size})));
  const std::size_t length = size_ - kIpv4Size;
  store_be(udp + kUdpLength, static_cast<std::uint16_t>(length));
  store_raw16(udp + kUdpChecksum, fold(sum_pseudo_header({ip + kIpv4Addresses, 8}, kProtocolUdp,
                                                         static_cast<std::uint32_t>(length))));
  offload.flags = kNeedsChecksum;
  offload.gso_type = kGsoUdp;
  offload.hdr_len = kHeaderSize;
  offload.gso_size = static_cast<std::uint16_t>(payload_);
  offload.csum_start = kUdp;
  offload.csum_offset = kUdpChecksum;
}

}  // namespace railweave::ports
