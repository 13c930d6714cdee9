// SPDX-License-Identifier: Apache-2.0
// The frames in one queue of a port: a bounded buffer, allocated once, in which like packets grow
// together.
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

/// A run of like UDP/IPv4 packets. The owner keeps the bytes: the first packet whole, of the others the
/// payload.
///
/// Packets are alike when only IP id, lengths and checksums differ; every one but the last has the same size.
/// The kernel writes lengths, ids that count up, and both checksums when it cuts; so a packet joins only if
/// both checksums are those that the kernel writes (a wrong one must stay wrong) and its id follows the one
/// before. Unless bytes are to stay exact, there are two exceptions, and packets so rewritten are counted:
/// - packets without UDP checksum run together and get one, which RFC 768 allows: zero only says that the
///   sender made none;
/// - atomic datagrams (DF set) are numbered anew: their id means nothing (RFC 6864). RoCEv2 disagrees with
///   the RFC, its ICRC covers the id: on its port ids always count.
class UdpRun {
 public:
  static constexpr std::size_t kHeaderSize = kEthernetSize + kIpv4Size + kUdpSize;

  /// `max_size`: of a whole super-packet from its IP header on, in bytes. `exact`: no packet is rewritten.
  UdpRun(std::size_t max_size, bool exact) : max_size_(max_size), exact_(exact) {}

  // A packet is given by its first bytes, at least kHeaderSize if it has as many, and its size; by all of its
  // bytes if it has a UDP checksum.

  /// Begins with `packet`; nothing will join when it cannot be part of any run.
  void start(Bytes packet, std::size_t size);
  /// Whether `packet` follows in the run that `head`, the stored first packet, began; if so it is counted in.
  bool join(Bytes head, Bytes packet, std::size_t size);

  void close() {
    open_ = false;
    packets_ = 0;
  }

  std::size_t packets() const { return packets_; }
  /// Packets that the kernel gives another id, or a checksum that they did not have.
  std::size_t rewritten() const { return without_checksum_ && packets_ > 1 ? packets_ : renumbered_; }
  std::size_t payload() const { return payload_; }  // of every packet but a shorter last one

 private:
  std::size_t max_size_;
  bool exact_;
  std::size_t payload_ = 0;  // of every packet but a shorter last one
  std::size_t size_ = 0;     // from the IP header on
  std::size_t packets_ = 0;
  std::size_t renumbered_ = 0;
  bool without_checksum_ = false;
  bool open_ = false;
};

inline constexpr std::size_t kMaxPriorityQueues = 8;

struct OutputLimits {
  // Longest run on the wire, IP header included; 0 sends every packet alone.
  std::size_t super_packet_bytes = 65'535;
  bool exact_bytes = false;           // only runs that the kernel cuts into the very same packets
  std::size_t queue_bytes = 2 << 20;  // waiting per queue; more packets are dropped
  std::size_t priority_queues = 1;    // per port, 1 to kMaxPriorityQueues
};

/// A frame ready for the socket: its offload header lies right in front of it.
struct OutputFrame {
  std::size_t offset;  // of the offload header in the buffer
  std::size_t size;    // offload header and frame
  std::uint32_t packets;
  std::uint32_t rewritten;  // of them: the kernel gives them another id or checksum

  /// Bytes of the packets that the kernel cuts the frame into.
  std::size_t wire_bytes() const { return size - sizeof(Offload) + (packets - 1) * UdpRun::kHeaderSize; }
};

class OutputQueue {
 public:
  explicit OutputQueue(const OutputLimits& limits);

  /// Copies `packet` behind what waits. False: no room, the packet is dropped.
  bool push(const engine::Pieces& packet);

  /// Ends the run in progress and gives all frames that wait, oldest first. Valid until the next call of
  /// another member.
  std::span<const OutputFrame> frames();
  std::byte* data(const OutputFrame& frame) { return &buffer_[frame.offset]; }

  /// Forgets the `count` oldest frames.
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
