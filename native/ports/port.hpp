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

/// Counts by one thread, readable by all.
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
  Count rx_refused;  // an offload that could not be undone, or longer than any frame
  Count tx_packets, tx_bytes, tx_frames;
  Count tx_dropped;    // the queue was full, or the interface down
  Count tx_refused;    // by the kernel, such as longer than the MTU
  Count tx_rewritten;  // left with an IPv4 id or UDP checksum that the program did not write
};

enum class Direction : std::uint8_t { kIn, kOut };

/// What stands between the wire and the program in one direction: a bad link, and a file of what passes: on
/// the way in what the program is given, on the way out what leaves.
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

  /// Opens the socket on the interface of this name, or takes an end of the shared link `shm:NAME`. Throws
  /// std::system_error where that fails.
  void open();

  /// Whether this is a shared link, which has frames at any time without an event.
  bool shared() const { return link_ != nullptr; }
  bool readable() const { return link_->readable(); }
  int receive(ReceiveBatch& batch) { return link_ ? batch.receive(*link_) : batch.receive(fd()); }

  /// Limits the packets in the kernel, on a slow link to those of about 10 ms. The socket is blocked while
  /// the kernel has more, so packets for a slow link wait in the switch.
  void limit_kernel_queue(bool on);

  enum class Change { kNone, kReopened, kGone };

  /// Looks whether the interface is still the one that the socket is bound to, and opens or closes
  /// accordingly.
  Change refresh();

  void emit(const engine::Pieces& packet);
  std::uint32_t waiting_packets(std::size_t priority) const { return queues_.at(priority).packets(); }

  /// What became of a flush: all sent, the socket's buffer is full (it will turn writable), or a queue behind
  /// the socket is (which nobody announces: to be tried again a little later).
  enum class Flush { kDone, kBlocked, kLater };
  /// Strict priority: a queue is served while all queues of a greater priority are empty.
  Flush flush();

  /// The socket reports an error: reads it away. Whether the link is there, `refresh()` finds out.
  void clear_error() const;
  void collect_drops() { counters.rx_missed.add(take_kernel_drops(fd())); }

  Path& path(Direction direction) { return direction == Direction::kIn ? in : out; }

  PortCounters counters;
  Path in, out;
  bool dirty = false;    // has output since the last flush
  bool waiting = false;  // for the socket to become writable
  bool retry = false;    // a queue behind the socket was full
  bool holds = false;    // packets for it may wait in the engine

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
  // Of the queue in the kernel.
  bool limited_ = false;
  int send_buffer_ = kSendBufferBytes;
  Time blocked_at_ = 0;  // since when a limited socket takes no frame; 0: it takes frames
  Descriptor socket_;
  std::unique_ptr<SharedLink> link_;
  std::vector<OutputQueue> queues_;  // by priority
};

}  // namespace railweave::ports
