// SPDX-License-Identifier: Apache-2.0
// One port of the switch: an interface or an end of a shared link, its output queues, and counters.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ports/capture.hpp"
#include "ports/impairment.hpp"
#include "ports/output_queue.hpp"
#include "ports/packet_socket.hpp"
#include "ports/shared_link.hpp"

namespace railweave::ports {

template <typename Clock>
Time now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

/// A counter that one thread writes and any thread reads.
class Count {
 public:
  void add(std::uint64_t n) { value_.store(get() + n, std::memory_order_relaxed); }
  std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// Packets are counted as on a wire: a super-packet of 40 segments is one frame and 40 packets.
struct PortCounters {
  Count rx_packets, rx_bytes, rx_frames;
  Count rx_missed;   // the kernel's buffer was full
  Count rx_refused;  // invalid offload, or longer than any frame
  Count tx_packets, tx_bytes, tx_frames;
  Count tx_dropped;    // full queue, or interface down
  Count tx_refused;    // by the kernel, for example longer than the MTU
  Count tx_rewritten;  // left with an IPv4 id or UDP checksum that the program did not write
};

enum class Direction : std::uint8_t { kIn, kOut };

/// Stages between the wire and the program in one direction. A capture holds the program's input, or the
/// packets that leave.
struct Path {
  std::unique_ptr<ImpairedLink> link;
  std::unique_ptr<Capture> capture;
};

class Port {
 public:
  Port(std::uint16_t number, std::string interface, const OutputLimits& limits);

  std::uint16_t number() const { return number_; }
  const std::string& interface() const { return interface_; }
  int fd() const { return socket_.get(); }  // −1 for a shared link
  bool up() const { return up_.load(std::memory_order_relaxed); }

  /// Opens the socket on the interface, or takes an end of the shared link `shm:NAME`. Throws
  /// std::system_error.
  void open();

  /// Whether this is a shared link. A shared link gives no events for its frames.
  bool shared() const { return link_ != nullptr; }
  bool readable() const { return link_->readable(); }
  int receive(ReceiveBatch& batch) { return link_ ? batch.receive(*link_) : batch.receive(fd()); }

  /// Limits the packets in the kernel, on a slow link to about 10 ms. The socket blocks beyond this limit, so
  /// packets for a slow link wait in the switch.
  void limit_kernel_queue(bool on);

  enum class Change { kNone, kReopened, kGone };

  /// Checks whether the interface is still the one that the socket is bound to. Opens or closes the socket if
  /// not.
  Change refresh();

  void emit(const engine::Pieces& packet);
  std::uint32_t waiting_packets(std::size_t priority) const { return queues_.at(priority).packets(); }

  /// Result of a flush. kDone: all sent. kBlocked: the socket's buffer is full; an event follows when it has
  /// room. kLater: a queue behind the socket is full; no event follows, so try again soon.
  enum class Flush { kDone, kBlocked, kLater };
  /// Strict priority: a queue is served only while all queues of greater priority are empty.
  Flush flush();

  /// Clears an error of the socket. `refresh()` finds out whether the link exists.
  void clear_error() const;
  void collect_drops() { counters.rx_missed.add(take_kernel_drops(fd())); }

  Path& path(Direction direction) { return direction == Direction::kIn ? in : out; }

  PortCounters counters;
  Path in, out;
  bool dirty = false;    // has output since the last flush
  bool waiting = false;  // for the socket to become writable
  bool retry = false;    // a queue behind the socket was full
  bool holds = false;    // its packets may wait in the engine

 private:
  Flush flush(OutputQueue& queue);
  int send(OutputQueue& queue, std::span<const OutputFrame> frames);
  void size_kernel_queue(Duration drained);
  void capture(OutputQueue& queue, const OutputFrame& frame);
  static void drop_front(OutputQueue& queue, std::span<const OutputFrame> frames, Count& reason);

  std::uint16_t number_;
  std::string interface_;
  unsigned index_ = 0;
  std::atomic<bool> up_{false};
  int refusals_ = 0;  // of the oldest frame
  // Limit of the queue in the kernel.
  bool limited_ = false;
  int send_buffer_ = kSendBufferBytes;
  Time blocked_at_ = 0;  // since when a limited socket accepts no frame; 0: it accepts frames
  Descriptor socket_;
  std::unique_ptr<SharedLink> link_;
  std::vector<OutputQueue> queues_;  // by priority
};

}  // namespace railweave::ports
