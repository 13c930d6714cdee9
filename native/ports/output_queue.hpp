// SPDX-License-Identifier: Apache-2.0
// What one port has still to send: a bounded buffer, allocated once, in which like packets grow together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/bytes.hpp"
#include "core/offload.hpp"
#include "ports/udp_run.hpp"

namespace railweave::ports {

struct OutputLimits {
  // Longest run on the wire, IP header included; 0 sends every packet alone.
  std::size_t super_packet_bytes = 65'535;
  bool exact_bytes = false;           // only runs that the kernel cuts into the very same packets
  std::size_t queue_bytes = 2 << 20;  // waiting per port; what comes beyond is dropped
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
  bool push(Bytes packet);

  /// Ends the run in progress and gives all frames that wait, oldest first. Valid until the next call of
  /// another member.
  std::span<const OutputFrame> frames();
  std::byte* data(const OutputFrame& frame) { return &buffer_[frame.offset]; }

  /// Forgets the `count` oldest frames.
  void pop(std::size_t count);

  bool empty() const { return first_ == frames_.size(); }
  std::uint32_t packets() const { return packets_; }

 private:
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
};

}  // namespace railweave::ports
