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
  const bool pending = (offload.flags & kNeedsChecksum) != 0;
  auto headers = locate_headers(frame_);
  const auto outer = headers;
  // A pending checksum is the innermost one, so any headers around it are a tunnel.
  const bool tunnelled = headers && pending && offload.csum_start > headers->transport;
  if (tunnelled) headers = locate_tunnelled(*outer, offload.csum_start);
  if (!headers || headers->payload == frame_.size() || headers->payload > kMaxHeaders) return false;
  const auto type = offload.gso_type & ~kGsoEcn;
  const bool tcp = headers->protocol == kProtocolTcp;
  if (type != (tcp ? (headers->ipv6 ? kGsoTcp6 : kGsoTcp4) : kGsoUdp) || offload.gso_size == 0) return false;
  header_size_ = headers->payload;
  segment_size_ = offload.gso_size;
  std::memcpy(headers_.data(), frame_.data(), header_size_);
  layer_ = prepare(*headers, pending);
  if (tunnelled) tunnel_ = prepare(*outer, false);
  return true;
}

std::optional<Headers> Segments::locate_tunnelled(const Headers& outer, std::size_t transport) const {
  if (outer.protocol != kProtocolUdp || outer.payload >= frame_.size()) return std::nullopt;
  constexpr std::size_t kVxlan = 8, kGeneveOption = 4;  // RFC 7348, RFC 8926
  const auto options = std::to_integer<std::size_t>(frame_[outer.payload]) & 0x3f;
  for (const std::size_t size : {kVxlan, kVxlan + options * kGeneveOption}) {
    const std::size_t start = outer.payload + size;
    if (start >= frame_.size()) continue;
    auto inner = locate_headers(Bytes(frame_).subspan(start));
    if (!inner || start + inner->transport != transport) continue;
    for (auto* offset : {&inner->network, &inner->transport, &inner->payload}) {
      *offset = static_cast<std::uint16_t>(*offset + start);
    }
    return inner;
  }
  return std::nullopt;
}

Segments::Layer Segments::prepare(const Headers& headers, bool checksum_pending) {
  Layer layer{.network = headers.network,
              .transport = headers.transport,
              .protocol = headers.protocol,
              .ipv6 = headers.ipv6};
  if (layer.protocol == kProtocolUdp) {
    std::byte* udp = &headers_[layer.transport];
    layer.without_checksum = !checksum_pending && load_be<std::uint16_t>(udp + kUdpChecksum) == 0;
    for (const std::size_t changes : {kUdpLength, kUdpChecksum}) store_raw16(udp + changes, 0);
    const Bytes addresses = layer.addresses(headers_.data());
    layer.udp_sum = sum_pseudo_header(addresses, kProtocolUdp, 0) + sum_few_words({udp, kUdpSize});
  }
  if (!layer.ipv6) {
    std::byte* ip = &headers_[layer.network];
    layer.first_id = load_be<std::uint16_t>(ip + kIpv4Id);
    for (const std::size_t changes : {kIpv4Length, kIpv4Id, kIpv4Checksum}) store_raw16(ip + changes, 0);
    layer.ip_sum = sum_few_words({ip, layer.transport - layer.network});
  }
  return layer;
}

std::optional<MutableBytes> Segments::next() {
  if (done_) return std::nullopt;
  if (segment_size_ == 0) {
    done_ = true;
    return frame_;
  }
  const std::size_t left = frame_.size() - header_size_ - offset_;
  const std::size_t payload = std::min(segment_size_, left);
  const std::size_t size = header_size_ + payload;
  const bool last = payload == left;
  std::byte* packet = frame_.data() + offset_;
  std::memcpy(packet, headers_.data(), header_size_);
  fix_ip(layer_, packet, size);
  if (layer_.protocol == kProtocolUdp) {
    fix_udp(layer_, packet, size);
  } else {
    fix_tcp(packet, size, last);
  }
  if (tunnel_) [[unlikely]] {
    fix_ip(*tunnel_, packet, size);
    fix_udp(*tunnel_, packet, size);
  }
  offset_ += payload;
  ++index_;
  done_ = last;
  return MutableBytes{packet, size};
}

void Segments::fix_ip(const Layer& layer, std::byte* packet, std::size_t size) const {
  std::byte* ip = packet + layer.network;
  const std::size_t length = size - layer.network;
  if (layer.ipv6) {
    store_be(ip + kIpv6Length, static_cast<std::uint16_t>(length - kIpv6Size));
    return;
  }
  const std::uint16_t raw_length = __builtin_bswap16(static_cast<std::uint16_t>(length));
  const std::uint16_t raw_id = __builtin_bswap16(static_cast<std::uint16_t>(layer.first_id + index_));
  store_raw16(ip + kIpv4Length, raw_length);
  store_raw16(ip + kIpv4Id, raw_id);
  store_raw16(ip + kIpv4Checksum, checksum(layer.ip_sum + raw_length + raw_id));
}

Bytes Segments::Layer::addresses(const std::byte* packet) const {
  const std::byte* ip = packet + network;
  return ipv6 ? Bytes{ip + kIpv6Addresses, 32} : Bytes{ip + kIpv4Addresses, 8};
}

void Segments::fix_udp(const Layer& layer, std::byte* packet, std::size_t size) const {
  std::byte* udp = packet + layer.transport;
  const std::size_t payload = size - layer.transport - kUdpSize;
  const std::uint16_t raw_length = __builtin_bswap16(static_cast<std::uint16_t>(kUdpSize + payload));
  store_raw16(udp + kUdpLength, raw_length);
  if (layer.without_checksum) return;
  // The length counts twice: in the header, and in the pseudo header.
  const std::uint64_t sum = layer.udp_sum + 2ull * raw_length + sum_words({udp + kUdpSize, payload});
  store_raw16(udp + kUdpChecksum, udp_checksum(sum));
}

void Segments::fix_tcp(std::byte* packet, std::size_t size, bool last) const {
  std::byte* tcp = packet + layer_.transport;
  const auto sequence = load_be<std::uint32_t>(tcp + kTcpSequence);
  store_be(tcp + kTcpSequence, static_cast<std::uint32_t>(sequence + offset_));
  std::byte& flags = tcp[kTcpFlags];
  if (!last) flags &= ~std::byte{kTcpFin | kTcpPush};
  if (index_ > 0) flags &= ~std::byte{kTcpCwr};
  store_raw16(tcp + kTcpChecksum, 0);
  const auto length = static_cast<std::uint32_t>(size - layer_.transport);
  const auto sum = sum_pseudo_header(layer_.addresses(packet), kProtocolTcp, length);
  store_raw16(tcp + kTcpChecksum, checksum(sum + sum_words({tcp, length})));
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
