// SPDX-License-Identifier: Apache-2.0
// RoCEv2 frames on one interface: AF_PACKET with batches, and with super-packets that the kernel (or nobody,
// over veth) cuts into frames. A raw IP socket would leave the IP identification, which the ICRC covers, to
// the kernel, and would take neither batches of super-packets nor frames past the host's firewall.
#pragma once

#include <sys/socket.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/descriptor.hpp"
#include "roce/frame.hpp"

namespace railweave::roce {

/// What PACKET_VNET_HDR puts in front of a frame (struct virtio_net_hdr, whose header C++ cannot read).
struct VirtioHeader {
  std::uint8_t flags, gso_type;
  std::uint16_t header_size, segment_size, checksum_start, checksum_offset;  // little-endian
};
static_assert(sizeof(VirtioHeader) == 10);

/// Packets to one peer that leave as one super-packet: all of the size of the first, save a shorter last one.
/// Their IP identifications count up by one, as the kernel numbers them when it cuts, so every ICRC is known
/// beforehand.
class Burst {
 public:
  /// Writes into `frame`, up to `limit` bytes if there is more than one packet.
  Burst(const Path& path, std::uint16_t first_id, MutableBytes frame, std::size_t limit)
      : path_(path), first_id_(first_id), frame_(frame), limit_(limit) {}

  bool takes(const Packet& packet) const;
  void append(const Packet& packet);
  /// Writes headers; returns the size of the whole and fills the virtio header that says how to cut it.
  std::size_t close(VirtioHeader& how);
  std::uint16_t count() const { return count_; }

 private:
  static constexpr std::uint16_t kMaxSegments = 64;  // the kernel's UDP_MAX_SEGMENTS of before 6.9

  const Path& path_;
  const std::uint16_t first_id_;
  const MutableBytes frame_;
  const std::size_t limit_;
  std::size_t size_ = kFrameHeaderSize;
  std::size_t segment_ = 0;  // bytes of the first packet, ICRC included
  bool open_ = true;         // a shorter packet ends the burst
  std::uint16_t count_ = 0;
};

/// Calls `handle` for the frames of a received super-packet (or the one frame) of `size` bytes. The buffer is
/// used up.
void cut(std::byte* frame, std::size_t size, std::size_t segment, const std::function<void(Bytes)>& handle);

class FrameSocket {
 public:
  /// Receives RoCEv2 for `address` on `interface`. Throws std::system_error (std::runtime_error) that names
  /// what is missing: CAP_NET_RAW, the interface, the address, or room for packets of `largest_packet` bytes
  /// (IPv4 length) in its MTU.
  FrameSocket(const std::string& interface, Ipv4Address address, std::size_t largest_packet);
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  int fd() const { return socket_.get(); }
  const MacAddress& mac() const { return mac_; }
  /// Whether another interface has come under the name of the one that this is bound to, or none.
  bool outdated() const;
  /// Who has this address on the interface's link, as far as the kernel knows.
  std::optional<MacAddress> neighbour(Ipv4Address address) const;

  /// Frames that can still be queued.
  std::size_t room() const { return kBatch - queued_; }
  MutableBytes slot();
  VirtioHeader& slot_header() { return out_[queued_].how; }
  void commit(std::size_t size);
  enum class Sent {
    kAll,
    kBlocked,
    kNoBuffers
  };  // blocked: wait for EPOLLOUT; no buffers: the queue is full, try later
  Sent flush();

  /// Hands over what has arrived, at most a few batches; false if there may be more.
  bool receive(const std::function<void(Bytes)>& handle);

 private:
  static constexpr std::size_t kBatch = 32;
  static constexpr std::size_t kSlot = 65'536 + kEthernetSize;

  struct Slot {
    VirtioHeader how;
    iovec parts[2];
    std::vector<std::byte> bytes;
  };

  static void prepare(std::array<Slot, kBatch>& slots, std::array<mmsghdr, kBatch>& messages);

  const std::string interface_;
  const unsigned index_;
  Descriptor socket_;
  Descriptor silencer_;  // UDP socket that keeps the kernel from answering "port unreachable"
  MacAddress mac_{};
  std::array<Slot, kBatch> out_, in_;
  std::array<mmsghdr, kBatch> out_messages_{}, in_messages_{};
  std::size_t queued_ = 0, sent_ = 0;
};

}  // namespace railweave::roce
