// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "roce/frame_socket.hpp"

namespace railweave::roce {
namespace {

constexpr std::uint8_t kNeedsChecksum = 1;    // VIRTIO_NET_HDR_F_NEEDS_CSUM
constexpr std::uint8_t kUdpSegmentation = 5;  // VIRTIO_NET_HDR_GSO_UDP_L4

// The sum over pseudo header fields that the kernel completes when it cuts; not complemented.
std::uint16_t pseudo_header_sum(const Path& path, std::size_t udp_length) {
  std::uint64_t sum = std::uint64_t{path.source} + path.peer + IPPROTO_UDP + udp_length;
  sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

}  // namespace

bool Burst::takes(const Packet& packet) const {
  if (count_ == 0) return true;
  const std::size_t size = written_size(packet) + kIcrcSize;
  return open_ && size <= segment_ && size_ + size <= limit_ && count_ < kMaxSegments;
}

void Burst::append(const Packet& packet) {
  const MutableBytes to = frame_.subspan(size_);
  const std::size_t size = write(packet, to);
  const std::uint32_t crc =
      icrc(network_header(path_, static_cast<std::uint16_t>(first_id_ + count_), size), to.first(size));
  std::memcpy(to.data() + size, &crc, kIcrcSize);
  if (count_++ == 0) segment_ = size + kIcrcSize;
  open_ = size + kIcrcSize == segment_;
  size_ += size + kIcrcSize;
}

std::size_t Burst::close(VirtioHeader& how) {
  const std::size_t payload = size_ - kFrameHeaderSize;
  const NetworkHeader network = network_header(path_, first_id_, payload - kIcrcSize);
  write_ethernet(path_, frame_.data());
  std::memcpy(frame_.data() + kEthernetSize, network.data(), network.size());
  set_ipv4_length(frame_.data() + kEthernetSize, network.size() + payload);
  how = {};
  if (count_ == 1) return size_;
  constexpr std::size_t udp = kEthernetSize + kIpv4Size, checksum = 6;
  store_be(frame_.data() + udp + checksum, pseudo_header_sum(path_, kUdpSize + payload));
  how.flags = kNeedsChecksum;
  how.gso_type = kUdpSegmentation;
  how.header_size = kFrameHeaderSize;
  how.segment_size = static_cast<std::uint16_t>(segment_);
  how.checksum_start = udp;
  how.checksum_offset = checksum;
  return size_;
}

void cut(std::byte* frame, std::size_t size, std::size_t segment, const std::function<void(Bytes)>& handle) {
  if (size <= kFrameHeaderSize || segment == 0 || size - kFrameHeaderSize <= segment)
    return handle({frame, size});
  std::array<std::byte, kFrameHeaderSize> header;
  std::memcpy(header.data(), frame, header.size());
  auto id = load_be<std::uint16_t>(frame + kEthernetSize + 4);
  for (std::size_t at = kFrameHeaderSize; at < size; at += segment, ++id) {
    // The headers go where the packet before, which is done with, has ended.
    const std::size_t payload = std::min(segment, size - at);
    std::byte* start = frame + at - kFrameHeaderSize;
    std::memcpy(start, header.data(), header.size());
    std::byte* ip = start + kEthernetSize;
    store_be(ip + 4, id);
    set_ipv4_length(ip, kIpv4Size + kUdpSize + payload);
    store_be(ip + kIpv4Size + 4, static_cast<std::uint16_t>(kUdpSize + payload));
    handle({start, kFrameHeaderSize + payload});
  }
}

}  // namespace railweave::roce
