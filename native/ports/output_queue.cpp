// SPDX-License-Identifier: Apache-2.0
#include "ports/output_queue.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/checksum.hpp"
#include "core/segments.hpp"

namespace railweave::ports {

namespace {

constexpr std::size_t kSmallestFrame = 64;  // sizes the list of frames; smaller frames fill it earlier

constexpr std::size_t kIp = kEthernetSize;
constexpr std::size_t kUdp = kIp + kIpv4Size;
constexpr std::uint16_t kRocePort = 4791;

bool same(Bytes a, Bytes b, std::size_t from, std::size_t to) {
  return std::memcmp(&a[from], &b[from], to - from) == 0;
}

bool has_checksum(Bytes packet) { return load_be<std::uint16_t>(&packet[kUdp + kUdpChecksum]) != 0; }

/// Whether both checksums are as the kernel would write them; UDP's may be missing.
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

/// Whether both headers' lengths match the packet, so that there is no trailer.
bool lengths_right(Bytes packet, std::size_t size) {
  return load_be<std::uint16_t>(&packet[kIp + kIpv4Length]) == size - kIp &&
         load_be<std::uint16_t>(&packet[kUdp + kUdpLength]) == size - kUdp;
}

/// Whether this is plain UDP in IPv4: no fragment, no trailer, no empty payload.
bool plain(Bytes packet, std::size_t size) {
  const auto headers = locate_headers(packet);
  return headers && headers->plain_udp() && size > headers->payload &&
         (load_be<std::uint16_t>(&packet[kIp + kIpv4Fragment]) & kFragmentMask) == 0 &&
         lengths_right(packet, size);
}

/// Compares everything except lengths, ids and checksums; also whether there is a UDP checksum.
bool same_flow(Bytes head, Bytes packet) {
  return same(head, packet, 0, kIp + kIpv4Length) &&
         same(head, packet, kIp + kIpv4Fragment, kIp + kIpv4Checksum) &&
         same(head, packet, kIp + kIpv4Addresses, kUdp + kUdpLength) &&
         has_checksum(head) == has_checksum(packet);
}

/// Whether a receiver has no use for the packet's id.
bool id_is_free(Bytes packet) {
  const bool atomic = (load_be<std::uint16_t>(&packet[kIp + kIpv4Fragment]) & kDontFragment) != 0;
  return atomic && load_be<std::uint16_t>(&packet[kUdp + kUdpDestination]) != kRocePort;
}

bool id_follows(Bytes head, Bytes packet, std::size_t distance) {
  const auto expected = load_be<std::uint16_t>(&head[kIp + kIpv4Id]) + distance;
  return load_be<std::uint16_t>(&packet[kIp + kIpv4Id]) == static_cast<std::uint16_t>(expected);
}

}  // namespace

void UdpRun::start(Bytes packet, std::size_t size) {
  packets_ = 1;
  renumbered_ = 0;
  size_ = size - kIp;
  open_ = size_ < max_size_ && plain(packet, size) && checksums_right(packet);
  without_checksum_ = open_ && !has_checksum(packet);
  if (exact_ && without_checksum_) open_ = false;
  payload_ = open_ ? size - kHeaderSize : 0;
}

bool UdpRun::join(Bytes head, Bytes packet, std::size_t size) {
  if (!open_ || size <= kHeaderSize || size > payload_ + kHeaderSize) return false;
  const std::size_t payload = size - kHeaderSize;
  const bool follows = id_follows(head, packet, packets_);
  // A packet of the same flow is as plain as the first packet; only its lengths are unchecked.
  if (size_ + payload > max_size_ || !same_flow(head, packet) || !lengths_right(packet, size) ||
      !(follows || (!exact_ && id_is_free(packet))) || !checksums_right(packet)) {
    return false;
  }
  if (!follows) ++renumbered_;
  size_ += payload;
  ++packets_;
  open_ = payload == payload_;
  return true;
}

OutputQueue::OutputQueue(const OutputLimits& limits)
    : limits_(limits),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(limits.queue_bytes)),
      run_(std::min(limits.super_packet_bytes, kMaxIpSize), limits.exact_bytes) {
  frames_.reserve(limits.queue_bytes / kSmallestFrame);
}

MutableBytes OutputQueue::last_frame() {
  const OutputFrame& last = frames_.back();
  return {&buffer_[last.offset + sizeof(Offload)], last.size - sizeof(Offload)};
}

/// Returns enough of a packet for UdpRun.
Bytes OutputQueue::front(const engine::Pieces& packet) {
  const Bytes first = packet.of[0];
  return first.size() < UdpRun::kHeaderSize || has_checksum(first) ? packet.whole(whole_) : first;
}

bool OutputQueue::push(const engine::Pieces& packet) {
  const bool open = !empty();
  const std::size_t size = packet.size();
  if (used_ + size + sizeof(Offload) > limits_.queue_bytes) return false;
  const Bytes first = front(packet);
  if (open && run_.join(last_frame(), first, size)) {
    // The headers overwrite the bytes before the free room, so these bytes are saved and restored.
    std::array<std::byte, UdpRun::kHeaderSize> kept;
    std::byte* const to = &buffer_[used_ - kept.size()];
    std::memcpy(kept.data(), to, kept.size());
    packet.write(to);
    std::memcpy(to, kept.data(), kept.size());
    const std::size_t payload = size - kept.size();
    used_ += payload;
    frames_.back().size += payload;
    frames_.back().packets += 1;
    ++packets_;
    return true;
  }
  if (frames_.size() == frames_.capacity()) return false;
  if (open) seal_last();
  const OutputFrame frame{used_, sizeof(Offload) + size, 1, 0};
  std::memset(&buffer_[used_], 0, sizeof(Offload));
  packet.write(&buffer_[used_ + sizeof(Offload)]);
  used_ += frame.size;
  frames_.push_back(frame);
  run_.start(first, size);
  ++packets_;
  return true;
}

void OutputQueue::seal_last() {
  if (run_.packets() > 1) {
    const Offload offload = make_super_packet(last_frame(), run_.payload());
    std::memcpy(&buffer_[frames_.back().offset], &offload, sizeof offload);
    frames_.back().rewritten = static_cast<std::uint32_t>(run_.rewritten());
  }
  run_.close();
}

std::span<const OutputFrame> OutputQueue::frames() {
  if (empty()) return {};
  seal_last();
  return std::span<const OutputFrame>(frames_).subspan(first_);
}

void OutputQueue::pop(std::size_t count) {
  for (; count > 0; --count) packets_ -= frames_[first_++].packets;
  if (empty()) {
    first_ = used_ = 0;
    frames_.clear();
  } else if (frames_[first_].offset >= limits_.queue_bytes / 2) {
    compact();
  }
}

/// Moves waiting frames to the front of the buffer, to reuse the room of sent frames.
void OutputQueue::compact() {
  const std::size_t start = frames_[first_].offset;
  std::memmove(&buffer_[0], &buffer_[start], used_ - start);
  used_ -= start;
  frames_.erase(frames_.begin(), frames_.begin() + static_cast<std::ptrdiff_t>(first_));
  for (OutputFrame& frame : frames_) frame.offset -= start;
  first_ = 0;
}

}  // namespace railweave::ports
