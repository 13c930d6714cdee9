// SPDX-License-Identifier: Apache-2.0
#include "roce/frame.hpp"

#include <algorithm>
#include <cstring>

#include "core/checksum.hpp"
#include "core/segments.hpp"

namespace railweave::roce {
namespace {

constexpr std::uint8_t kTtl = 64;

}  // namespace

// Whole words, because a load of another size than the stores before it waits until they are in the cache.
Icrc::Icrc(const std::byte* network) {
  const std::byte* ip = network;
  const auto word = [](const std::byte* from) { return load_le<std::uint64_t>(from); };
  head_ = {
      ~0ull,                                        // in place of the link header, which RoCEv2 lacks
      (word(ip) & 0xffff'0000'0000'ffff) | 0xff00,  // length and identification, TOS
      word(ip + 8) | 0xffff'00ff,                   // TTL, checksum
      word(ip + 16),
      0xffff'0000,  // UDP: length, checksum
  };
}

CrcHead Icrc::head(std::uint16_t ip_id, const std::byte* bth, std::size_t transport_size) const {
  const auto raw = [](std::size_t value) {
    return std::uint64_t{__builtin_bswap16(static_cast<std::uint16_t>(value))};
  };
  const std::size_t udp_length = kUdpSize + transport_size + kIcrcSize;
  return {
      head_[0],
      head_[1] | raw(kIpv4Size + udp_length) << 16 | raw(ip_id) << 32,
      head_[2],
      head_[3],
      head_[4] | raw(udp_length) | std::uint64_t{load_le<std::uint32_t>(bth)} << 32,
      load_le<std::uint64_t>(bth + 4) | 0xff,  // FECN, BECN, reserved
  };
}

std::uint32_t Icrc::of(std::uint16_t ip_id, Bytes transport) const {
  return ~crc32_behind(head(ip_id, transport.data(), transport.size()), transport.subspan(kBthSize));
}

std::uint32_t Icrc::copying(std::uint16_t ip_id, std::byte* transport, Bytes payload) const {
  return ~crc32_copy_behind(head(ip_id, transport, kBthSize + payload.size()), payload, transport + kBthSize);
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
  store_le<std::uint32_t>(transport + transport_size,
                          Icrc(network.data()).of(ip_id, {transport, transport_size}));
  return kFrameHeaderSize + transport_size + kIcrcSize;
}

bool Burst::takes(const Packet& packet) const {
  if (count_ == 0) return true;
  const std::size_t size = written_size(packet) + kIcrcSize;
  return open_ && size <= segment_ && size_ + size + count_ * kFrameHeaderSize <= limit_ &&
         count_ < kMaxSegments;
}

void Burst::append(const Packet& packet) {
  std::byte* const to = frame_.data() + size_;
  const auto id = static_cast<std::uint16_t>(first_id_ + count_);
  const std::size_t size = written_size(packet);
  std::uint32_t icrc;
  if (size == kBthSize + packet.payload.size()) {  // most packets of a message
    write_headers(packet, to);
    icrc = icrc_.copying(id, to, packet.payload);
  } else {
    icrc = icrc_.of(id, {to, write(packet, {to, size})});
  }
  store_le<std::uint32_t>(to + size, icrc);
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

OpenedFrames::OpenedFrames(Bytes frame, const Offload& offload)
    : frame_(frame), icrc_(NetworkHeader{}.data()) {
  opened_.fault = open_headers(offload);
}

FrameFault OpenedFrames::open_headers(const Offload& offload) {
  const auto type = offload.gso_type & ~kGsoEcn;
  const auto headers = locate_headers(frame_);
  if (!headers || !headers->plain_udp() || (type != kGsoNone && type != kGsoUdp)) return FrameFault::kNotRoce;
  const std::byte* ip = frame_.data() + kEthernetSize;
  const std::byte* udp = ip + kIpv4Size;
  if ((load_be<std::uint16_t>(ip + kIpv4Fragment) & kFragmentMask) != 0 ||
      load_be<std::uint16_t>(udp + kUdpDestination) != kUdpPort) {
    return FrameFault::kNotRoce;
  }
  const std::size_t ip_length = load_be<std::uint16_t>(ip + kIpv4Length);
  const std::size_t udp_length = load_be<std::uint16_t>(udp + kUdpLength);
  if (ip_length != kIpv4Size + udp_length || frame_.size() < kEthernetSize + ip_length ||
      udp_length < kUdpSize + kBthSize + kIcrcSize || !checksum_right({ip, kIpv4Size})) {
    return FrameFault::kMalformed;
  }
  opened_.source = load_be<std::uint32_t>(ip + kIpv4Addresses);
  opened_.destination = load_be<std::uint32_t>(ip + kIpv4Addresses + 4);
  std::memcpy(opened_.source_mac.data(), frame_.data() + 6, 6);
  ip_id_ = load_be<std::uint16_t>(ip + kIpv4Id);
  icrc_ = Icrc(ip);
  left_ = frame_.subspan(kFrameHeaderSize, udp_length - kUdpSize);
  segment_ = type == kGsoUdp ? offload.gso_size : left_.size();
  return FrameFault::kNone;
}

// In place: a copy would load in one piece what two stores have written. Such a load waits until all earlier
// stores, with the last packet's payload, are in the cache.
const OpenedFrame* OpenedFrames::next() {
  if (done_) return nullptr;
  done_ = true;
  if (left_.empty()) return &opened_;
  const std::size_t size = std::min(segment_, left_.size());
  if (size < kBthSize + kIcrcSize) {
    opened_.fault = FrameFault::kMalformed;
    opened_.transport = {};
    return &opened_;
  }
  opened_.transport = left_.first(size - kIcrcSize);
  const auto icrc = load_le<std::uint32_t>(left_.data() + opened_.transport.size());
  opened_.fault = icrc == icrc_.of(ip_id_++, opened_.transport) ? FrameFault::kNone : FrameFault::kBadIcrc;
  left_ = left_.subspan(size);
  done_ = left_.empty();
  return &opened_;
}

}  // namespace railweave::roce
