// SPDX-License-Identifier: Apache-2.0
#include "ports/segments.hpp"

#include <algorithm>
#include <cstring>

#include "ports/checksum.hpp"
#include "ports/headers.hpp"

namespace railweave::ports {

namespace {

std::size_t at(Bytes bytes, std::size_t offset) { return std::to_integer<std::size_t>(bytes[offset]); }

}  // namespace

Segments::Segments(MutableBytes frame, const Offload& offload) : frame_(frame) {
  const auto type = offload.gso_type & ~kGsoEcn;
  const bool understood =
      type == kGsoNone ? complete_checksum(offload) : locate_headers() && prepare_cut(offload);
  refused_ = done_ = !understood;
}

bool Segments::complete_checksum(const Offload& offload) {
  if (!(offload.flags & kNeedsChecksum)) return true;
  const std::size_t field = std::size_t{offload.csum_start} + offload.csum_offset;
  if (field + 2 > frame_.size()) return false;
  // The field holds the folded sum of the pseudo header already.
  const std::uint64_t sum = sum_words(frame_.subspan(offload.csum_start));
  const bool udp = offload.csum_offset == kUdpChecksum;
  store_raw16(&frame_[field], udp ? udp_checksum(sum) : checksum(sum));
  return true;
}

bool Segments::locate_headers() {
  std::size_t type_at = kEthernetSize - 2;
  std::uint16_t ether_type = 0;
  for (;; type_at += kVlanTagSize) {
    if (type_at + 2 > frame_.size()) return false;
    ether_type = load_be<std::uint16_t>(&frame_[type_at]);
    if (ether_type != kEtherVlan && ether_type != kEtherQinQ) break;
  }
  network_ = type_at + 2;
  ipv6_ = ether_type == kEtherIpv6;
  if (!ipv6_ && ether_type != kEtherIpv4) return false;
  const std::size_t minimum = ipv6_ ? kIpv6Size : kIpv4Size;
  if (network_ + minimum > frame_.size()) return false;
  if (ipv6_) {
    protocol_ = static_cast<std::uint8_t>(at(frame_, network_ + kIpv6NextHeader));
    transport_ = network_ + kIpv6Size;
  } else {
    const std::size_t size = (at(frame_, network_) & 0xf) * 4;
    if (size < kIpv4Size) return false;
    protocol_ = static_cast<std::uint8_t>(at(frame_, network_ + kIpv4Protocol));
    transport_ = network_ + size;
  }
  if (protocol_ == kProtocolUdp) {
    header_size_ = transport_ + kUdpSize;
  } else if (protocol_ == kProtocolTcp) {
    if (transport_ + kTcpSize > frame_.size()) return false;
    header_size_ = transport_ + (at(frame_, transport_ + kTcpDataOffset) >> 4) * 4;
    if (header_size_ < transport_ + kTcpSize) return false;
  } else {
    return false;
  }
  return header_size_ < frame_.size() && header_size_ <= kMaxHeaders;
}

bool Segments::prepare_cut(const Offload& offload) {
  const auto type = offload.gso_type & ~kGsoEcn;
  const bool agrees = (type == kGsoUdp && protocol_ == kProtocolUdp) ||
                      (type == kGsoTcp4 && protocol_ == kProtocolTcp && !ipv6_) ||
                      (type == kGsoTcp6 && protocol_ == kProtocolTcp && ipv6_);
  if (!agrees || offload.gso_size == 0) return false;
  segment_size_ = offload.gso_size;
  without_checksum_ = protocol_ == kProtocolUdp && !(offload.flags & kNeedsChecksum) &&
                      load_be<std::uint16_t>(&frame_[transport_ + kUdpChecksum]) == 0;
  std::memcpy(headers_.data(), frame_.data(), header_size_);
  return true;
}

std::optional<MutableBytes> Segments::next() {
  if (done_) return std::nullopt;
  if (segment_size_ == 0) {
    done_ = true;
    return frame_;
  }
  const std::size_t left = frame_.size() - header_size_ - offset_;
  const std::size_t payload = std::min(segment_size_, left);
  const bool last = payload == left;
  std::byte* packet = frame_.data() + offset_;
  std::memcpy(packet, headers_.data(), header_size_);
  fix_ip(packet, payload);
  if (protocol_ == kProtocolUdp) {
    fix_udp(packet, payload);
  } else {
    fix_tcp(packet, payload, last);
  }
  offset_ += payload;
  ++index_;
  done_ = last;
  return MutableBytes{packet, header_size_ + payload};
}

void Segments::fix_ip(std::byte* packet, std::size_t payload) {
  std::byte* ip = packet + network_;
  const std::size_t length = header_size_ - network_ + payload;
  if (ipv6_) {
    store_be(ip + kIpv6Length, static_cast<std::uint16_t>(length - kIpv6Size));
    return;
  }
  store_be(ip + kIpv4Length, static_cast<std::uint16_t>(length));
  const auto id = load_be<std::uint16_t>(ip + kIpv4Id);
  store_be(ip + kIpv4Id, static_cast<std::uint16_t>(id + index_));
  store_raw16(ip + kIpv4Checksum, 0);
  store_raw16(ip + kIpv4Checksum, checksum(sum_words({ip, transport_ - network_})));
}

std::uint64_t Segments::sum_transport(const std::byte* packet, std::size_t payload) const {
  const std::byte* ip = packet + network_;
  const Bytes addresses = ipv6_ ? Bytes{ip + kIpv6Addresses, 32} : Bytes{ip + kIpv4Addresses, 8};
  const std::size_t length = header_size_ - transport_ + payload;
  return sum_pseudo_header(addresses, protocol_, static_cast<std::uint32_t>(length)) +
         sum_words({packet + transport_, length});
}

void Segments::fix_udp(std::byte* packet, std::size_t payload) {
  std::byte* udp = packet + transport_;
  store_be(udp + kUdpLength, static_cast<std::uint16_t>(kUdpSize + payload));
  store_raw16(udp + kUdpChecksum, 0);
  if (!without_checksum_) store_raw16(udp + kUdpChecksum, udp_checksum(sum_transport(packet, payload)));
}

void Segments::fix_tcp(std::byte* packet, std::size_t payload, bool last) {
  std::byte* tcp = packet + transport_;
  const auto sequence = load_be<std::uint32_t>(tcp + kTcpSequence);
  store_be(tcp + kTcpSequence, static_cast<std::uint32_t>(sequence + offset_));
  std::byte& flags = tcp[kTcpFlags];
  if (!last) flags &= ~std::byte{kTcpFin | kTcpPush};
  if (index_ > 0) flags &= ~std::byte{kTcpCwr};
  store_raw16(tcp + kTcpChecksum, 0);
  store_raw16(tcp + kTcpChecksum, checksum(sum_transport(packet, payload)));
}

}  // namespace railweave::ports
