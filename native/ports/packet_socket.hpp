// SPDX-License-Identifier: Apache-2.0
// An AF_PACKET socket on one interface, with offload headers and batches.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/bytes.hpp"
#include "core/descriptor.hpp"
#include "core/offload.hpp"
#include "ports/output_queue.hpp"
#include "ports/shared_link.hpp"

namespace railweave::ports {

inline constexpr int kSendBufferBytes = 4 << 20;  // of a new socket

/// Opens a raw socket for all protocols on the interface with this index: promiscuous, with PACKET_VNET_HDR,
/// without its own outgoing frames. Throws std::system_error with the interface and the step.
Descriptor open_packet_socket(const std::string& interface, unsigned index);

/// Number of frames that the kernel dropped since the last call because of a full socket buffer.
std::uint64_t take_kernel_drops(int fd);

/// Room for one batch of received frames, allocated once and shared by all ports.
class ReceiveBatch {
 public:
  static constexpr unsigned kFrames = 16;

  ReceiveBatch();

  /// Receives without waiting. Returns the number of frames, or −errno.
  int receive(int fd);
  int receive(SharedLink& link);
  /// Whether the last batch reached its limit, so that more frames may wait.
  bool full() const { return full_; }
  /// Whether the last batch reached a limit below kFrames.
  bool cut() const { return cut_; }

  /// Frame `i` of the last batch, with the VLAN tag that the kernel had removed. Empty if the frame was too
  /// long.
  MutableBytes frame(unsigned i);
  const Offload& offload(unsigned i) const { return offloads_[i]; }

 private:
  static constexpr std::size_t kFrameBytes = 66 * 1024;
  static constexpr std::size_t kControlBytes = 64;
  // Received bytes, registers and output should stay in a core's second-level cache until the batch is sent.
  // So a batch has few super-packets.
  static constexpr std::size_t kBatchBytes = 128 * 1024;

  std::unique_ptr<std::byte[]> buffer_;
  std::array<std::array<std::byte, kControlBytes>, kFrames> control_;
  std::array<Offload, kFrames> offloads_;
  std::array<std::array<iovec, 2>, kFrames> vectors_;
  std::array<mmsghdr, kFrames> messages_;
  unsigned most_ = kFrames;  // of the next batch
  bool full_ = false, cut_ = false;
};

/// Sends up to 64 of the oldest frames without waiting. Returns their number, or −errno if the first failed.
int send_batch(int fd, OutputQueue& queue, std::span<const OutputFrame> frames);

}  // namespace railweave::ports
