// SPDX-License-Identifier: Apache-2.0
#include "core/segments.hpp"

#include <algorithm>
#include <cstring>

#include "core/checksum.hpp"

namespace railweave {

Segments::Segments(MutableBytes frame, const Offload& offload) : frame_(frame) {
  const auto type = offload.gso_type & ~kGsoEcn;
  refused_ = done_ = !(type == kGsoNone ? complete_checksum(offload) : prepare_cut(offload));
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

bool Segments::prepare_cut(const Offload& offload) {
  const auto headers = locate_headers(frame_);
  if (!headers || headers->payload == frame_.size() || headers->payload > kMaxHeaders) return false;
  const auto type = offload.gso_type & ~kGsoEcn;
  const bool tcp = headers->protocol == kProtocolTcp;
  if (type != (tcp ? (headers->ipv6 ? kGsoTcp6 : kGsoTcp4) : kGsoUdp) || offload.gso_size == 0) return false;
  network_ = headers->network;
  transport_ = headers->transport;
  header_size_ = headers->payload;
  protocol_ = headers->protocol;
  ipv6_ = headers->ipv6;
  segment_size_ = offload.gso_size;
  if (!tcp && !(offload.flags & kNeedsChecksum) &&
      load_be<std::uint16_t>(&frame_[transport_ + kUdpChecksum]) == 0) {
    without_checksum_ = true;
  }
  std::memcpy(headers_.data(), frame_.data(), header_size_);
  if (!tcp) {
    std::byte* udp = &headers_[transport_];
    for (const std::size_t changes : {kUdpLength, kUdpChecksum}) store_raw16(udp + changes, 0);
    udp_sum_ = sum_pseudo_header(addresses(headers_.data()), protocol_, 0) + sum_few_words({udp, kUdpSize});
  }
  if (!ipv6_) {
    std::byte* ip = &headers_[network_];
    first_id_ = load_be<std::uint16_t>(ip + kIpv4Id);
    for (const std::size_t changes : {kIpv4Length, kIpv4Id, kIpv4Checksum}) store_raw16(ip + changes, 0);
    ip_sum_ = sum_few_words({ip, transport_ - network_});
  }
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
  const std::uint16_t raw_length = __builtin_bswap16(static_cast<std::uint16_t>(length));
  const std::uint16_t raw_id = __builtin_bswap16(static_cast<std::uint16_t>(first_id_ + index_));
  store_raw16(ip + kIpv4Length, raw_length);
  store_raw16(ip + kIpv4Id, raw_id);
  store_raw16(ip + kIpv4Checksum, checksum(ip_sum_ + raw_length + raw_id));
}

Bytes Segments::addresses(const std::byte* packet) const {
  const std::byte* ip = packet + network_;
  return ipv6_ ? Bytes{ip + kIpv6Addresses, 32} : Bytes{ip + kIpv4Addresses, 8};
}

void Segments::fix_udp(std::byte* packet, std::size_t payload) {
  std::byte* udp = packet + transport_;
  const std::uint16_t raw_length = __builtin_bswap16(static_cast<std::uint16_t>(kUdpSize + payload));
  store_raw16(udp + kUdpLength, raw_length);
  if (without_checksum_) return;
  // The length counts twice: in the header, and in the pseudo header.
  const std::uint64_t sum = udp_sum_ + 2ull * raw_length + sum_words({udp + kUdpSize, payload});
  store_raw16(udp + kUdpChecksum, udp_checksum(sum));
}

void Segments::fix_tcp(std::byte* packet, std::size_t payload, bool last) {
  std::byte* tcp = packet + transport_;
  const auto sequence = load_be<std::uint32_t>(tcp + kTcpSequence);
  store_be(tcp + kTcpSequence, static_cast<std::uint32_t>(sequence + offset_));
  std::byte& flags = tcp[kTcpFlags];
  if (!last) flags &= ~std::byte{kTcpFin | kTcpPush};
  if (index_ > 0) flags &= ~std::byte{kTcpCwr};
  store_raw16(tcp + kTcpChecksum, 0);
  const auto length = static_cast<std::uint32_t>(header_size_ - transport_ + payload);
  store_raw16(tcp + kTcpChecksum,
              checksum(sum_pseudo_header(addresses(packet), protocol_, length) + sum_words({tcp, length})));
}

Offload make_super_packet(MutableBytes frame, std::size_t segment_size) {
  constexpr std::size_t kTransport = kEthernetSize + kIpv4Size;
  std::byte* ip = &frame[kEthernetSize];
  std::byte* udp = &frame[kTransport];
  const std::size_t length = frame.size() - kTransport;
  store_be(ip + kIpv4Length, static_cast<std::uint16_t>(kIpv4Size + length));
  store_ipv4_checksum(ip);
  store_be(udp + kUdpLength, static_cast<std::uint16_t>(length));
  store_raw16(udp + kUdpChecksum, fold(sum_pseudo_header({ip + kIpv4Addresses, 8}, kProtocolUdp,
                                                         static_cast<std::uint32_t>(length))));
  return {.flags = kNeedsChecksum,
          .gso_type = kGsoUdp,
          .hdr_len = kTransport + kUdpSize,
          .gso_size = static_cast<std::uint16_t>(segment_size),
          .csum_start = kTransport,
          .csum_offset = kUdpChecksum};
}

}  // namespace railweave
