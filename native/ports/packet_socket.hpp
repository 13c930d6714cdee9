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

/// Opens a raw socket for all protocols on the interface of this index, promiscuous, with PACKET_VNET_HDR,
/// deaf to what it sends itself. Throws std::system_error that names the interface and the step.
Descriptor open_packet_socket(const std::string& interface, unsigned index);

/// Frames the kernel dropped since the last call because the socket's buffer was full.
std::uint64_t take_kernel_drops(int fd);

/// Room for one batch of received frames, allocated once and shared by all ports.
class ReceiveBatch {
 public:
  static constexpr unsigned kFrames = 16;

  ReceiveBatch();

  /// Receives without waiting; the number of frames, or −errno.
  int receive(int fd);
  int receive(SharedLink& link);
  /// Whether the last batch was as large as it could be: there may be more.
  bool full() const { return full_; }
  /// Whether it was full with fewer than kFrames.
  bool cut() const { return cut_; }

  /// Frame `i` of the last batch, with a VLAN tag that the kernel had taken out put back in. Empty: it was
  /// longer than any frame may be.
  MutableBytes frame(unsigned i);
  const Offload& offload(unsigned i) const { return offloads_[i]; }

 private:
  static constexpr std::size_t kFrameBytes = 66 * 1024;
  static constexpr std::size_t kControlBytes = 64;
  // What is received, registers and what leaves should all stay in a core's second-level cache until the
  // batch has been sent: of super-packets there are few in a batch.
  static constexpr std::size_t kBatchBytes = 128 * 1024;

  std::unique_ptr<std::byte[]> buffer_;
  std::array<std::array<std::byte, kControlBytes>, kFrames> control_;
  std::array<Offload, kFrames> offloads_;
  std::array<std::array<iovec, 2>, kFrames> vectors_;
  std::array<mmsghdr, kFrames> messages_;
  unsigned most_ = kFrames;  // of the next batch
  bool full_ = false, cut_ = false;
};

/// Sends up to 64 of the oldest frames without waiting; the number that went, or −errno if the first did not.
int send_batch(int fd, OutputQueue& queue, std::span<const OutputFrame> frames);

}  // namespace railweave::ports
