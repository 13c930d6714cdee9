// SPDX-License-Identifier: Apache-2.0
// The frames in one queue of a port. The buffer is bounded and allocated once. Similar packets are joined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/bytes.hpp"
#include "core/headers.hpp"
#include "core/offload.hpp"
#include "engine/packet.hpp"

namespace railweave::ports {

/// A run of similar UDP/IPv4 packets. The owner keeps the bytes: the whole first packet, then only payloads.
///
/// Packets of a run differ only in IP id, lengths and checksums. All have the same size, except a shorter
/// last one. When the kernel cuts the run, it writes lengths, increasing ids, and both checksums. So a packet
/// joins only if the kernel writes the same checksums (a wrong checksum must stay wrong) and the id follows
/// the one before. There are two exceptions, unless bytes must stay exact. Packets rewritten in this way are
/// counted:
/// - Packets without UDP checksum are joined and get a checksum. RFC 768 allows this: zero means no checksum.
/// - Atomic datagrams (DF set) get new ids, because their ids have no meaning (RFC 6864). RoCEv2 ignores this
///   RFC: its ICRC covers the id. On RoCEv2's port ids always count.
class UdpRun {
 public:
  static constexpr std::size_t kHeaderSize = kEthernetSize + kIpv4Size + kUdpSize;

  /// `max_size`: bytes of a whole super-packet from its IP header on. `exact`: no packet is rewritten.
  UdpRun(std::size_t max_size, bool exact) : max_size_(max_size), exact_(exact) {}

  // A packet argument holds the packet's first bytes, at least kHeaderSize if the packet has that many. With
  // a UDP checksum it holds the whole packet. `size` is the packet's size.

  /// Begins a run with `packet`. No packet joins if `packet` cannot be part of a run.
  void start(Bytes packet, std::size_t size);
  /// Whether `packet` continues the run that begins with `head`. If so, the run counts it.
  bool join(Bytes head, Bytes packet, std::size_t size);

  void close() {
    open_ = false;
    packets_ = 0;
  }

  std::size_t packets() const { return packets_; }
  /// Packets that get another id from the kernel, or a checksum that they did not have.
  std::size_t rewritten() const { return without_checksum_ && packets_ > 1 ? packets_ : renumbered_; }
  std::size_t payload() const { return payload_; }  // bytes per packet; the last packet may have fewer

 private:
  std::size_t max_size_;
  bool exact_;
  std::size_t payload_ = 0;  // bytes per packet; the last packet may have fewer
  std::size_t size_ = 0;     // of the super-packet, from the IP header on
  std::size_t packets_ = 0;
  std::size_t renumbered_ = 0;
  bool without_checksum_ = false;
  bool open_ = false;
};

inline constexpr std::size_t kMaxPriorityQueues = 8;

struct OutputLimits {
  // Longest run on the wire, IP header included. 0: every packet is sent alone.
  std::size_t super_packet_bytes = 65'535;
  bool exact_bytes = false;           // only runs that the kernel cuts into exactly the same packets
  std::size_t queue_bytes = 2 << 20;  // limit per queue; more packets are dropped
  std::size_t priority_queues = 1;    // per port, 1 to kMaxPriorityQueues
};

/// A frame ready for the socket. Its offload header is directly before it.
struct OutputFrame {
  std::size_t offset;  // of the offload header in the buffer
  std::size_t size;    // offload header and frame
  std::uint32_t packets;
  std::uint32_t rewritten;  // packets that get another id or checksum from the kernel

  /// Total bytes of the packets that the kernel cuts from the frame.
  std::size_t wire_bytes() const { return size - sizeof(Offload) + (packets - 1) * UdpRun::kHeaderSize; }
};

class OutputQueue {
 public:
  explicit OutputQueue(const OutputLimits& limits);

  /// Appends a copy of `packet`. Returns false if there is no room; the packet is then dropped.
  bool push(const engine::Pieces& packet);

  /// Ends the present run and returns all waiting frames, oldest first. The result is valid until the next
  /// call of another method.
  std::span<const OutputFrame> frames();
  std::byte* data(const OutputFrame& frame) { return &buffer_[frame.offset]; }

  /// Removes the `count` oldest frames.
  void pop(std::size_t count);

  bool empty() const { return first_ == frames_.size(); }
  std::uint32_t packets() const { return packets_; }

 private:
  Bytes front(const engine::Pieces& packet);
  void seal_last();
  MutableBytes last_frame();
  void compact();

  OutputLimits limits_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t used_ = 0;
  std::vector<OutputFrame> frames_;
  std::size_t first_ = 0;  // index of the oldest frame
  std::uint32_t packets_ = 0;
  UdpRun run_;
  std::vector<std::byte> whole_;
};

}  // namespace railweave::ports
