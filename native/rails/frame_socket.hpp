// SPDX-License-Identifier: Apache-2.0
// RoCEv2 frames on one interface, over AF_PACKET, in batches and super-packets. The kernel cuts super-packets
// into frames; over veth nobody does. With a raw IP socket, the kernel would set the IP identification, which
// the ICRC covers. Such a socket takes no batches of super-packets, and the host's firewall filters its
// frames.
#pragma once

#include <sys/socket.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/descriptor.hpp"
#include "core/offload.hpp"
#include "core/segments.hpp"
#include "roce/frame.hpp"

namespace railweave {

class FrameSocket {
 public:
  /// Receives RoCEv2 for `address` on `interface`. Throws std::system_error (std::runtime_error) that names
  /// the missing part: CAP_NET_RAW, the interface, the address, or an MTU for packets of `largest_packet`
  /// bytes (IPv4 length).
  FrameSocket(const std::string& interface, roce::Ipv4Address address, std::size_t largest_packet);
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  int fd() const { return socket_.get(); }
  const roce::MacAddress& mac() const { return mac_; }
  /// Whether another interface now has the name of this socket's interface, or no interface has it.
  bool outdated() const;
  /// The MAC address of `address` on the interface's link, if the kernel knows it.
  std::optional<roce::MacAddress> neighbour(roce::Ipv4Address address) const;

  /// Whether the kernel cuts UDP super-packets of packet sockets, as far as this socket knows. Linux before
  /// 6.2 refuses them. Then `flush` itself cuts the queued super-packets.
  bool kernel_cuts() const { return kernel_cuts_; }
  std::uint64_t refused_cuts() const { return refused_cuts_; }
  /// Sends a super-packet over loopback, without a receiver, to find out. Throws std::system_error if it
  /// cannot try.
  static bool try_kernel_cuts();

  /// Frames that can still be queued.
  std::size_t room() const { return kBatch - bulk_.queued; }
  MutableBytes slot() { return bulk_.slots[bulk_.queued].bytes; }
  /// Queues the complete frame in `slot`.
  void commit(std::size_t size, const Offload& offload);
  /// Queues it ahead of frames that wait in the interface's queue, if this queue has bands (pfifo_fast,
  /// prio). Does nothing and returns false if the frame is too long or too many urgent frames wait.
  bool commit_urgent(std::size_t size, const Offload& offload);
  enum class Sent { kAll, kBlocked, kNoBuffers };  // blocked: wait for EPOLLOUT; no buffers: try later
  Sent flush();

  /// Passes arrived frames to `handle`, at most a few batches. Returns false if there may be more.
  bool receive(const std::function<void(Bytes, const Offload&)>& handle);

 private:
  static constexpr std::size_t kBatch = 32;
  static constexpr std::size_t kSlot = 65'536 + kEthernetSize, kUrgentSlot = 512;

  struct Slot {
    Offload offload;
    iovec parts[2];
    std::vector<std::byte> bytes;
  };
  /// A queue of received frames, or of frames to be sent.
  struct Lane {
    explicit Lane(std::size_t slot_bytes, int packet_priority = 0);
    void commit(std::size_t size, const Offload& offload);

    const int priority;
    std::array<Slot, kBatch> slots;
    std::array<mmsghdr, kBatch> messages{};
    std::size_t queued = 0, sent = 0;
    std::optional<Segments> cut{};        // of the next frame, while it is sent in pieces
    std::optional<MutableBytes> piece{};  // the next piece
  };

  Sent flush(Lane& lane);
  bool begin_cut(Lane& lane);
  int send_piece(Lane& lane);

  const std::string interface_;
  const unsigned index_;
  Descriptor socket_;
  Descriptor port_holder_;  // UDP socket that keeps the kernel from answering "port unreachable"
  roce::MacAddress mac_{};
  Lane in_, bulk_, urgent_;
  int priority_ = 0;  // of the next send
  bool kernel_cuts_ = true;
  std::uint64_t refused_cuts_ = 0;
};

}  // namespace railweave
