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
#include "core/offload.hpp"
#include "core/segments.hpp"
#include "roce/frame.hpp"

namespace railweave {

class FrameSocket {
 public:
  /// Receives RoCEv2 for `address` on `interface`. Throws std::system_error (std::runtime_error) that names
  /// what is missing: CAP_NET_RAW, the interface, the address, or room for packets of `largest_packet` bytes
  /// (IPv4 length) in its MTU.
  FrameSocket(const std::string& interface, roce::Ipv4Address address, std::size_t largest_packet);
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  int fd() const { return socket_.get(); }
  const roce::MacAddress& mac() const { return mac_; }
  /// Whether another interface has come under the name of the one that this is bound to, or none.
  bool outdated() const;
  /// Who has this address on the interface's link, as far as the kernel knows.
  std::optional<roce::MacAddress> neighbour(roce::Ipv4Address address) const;

  /// Whether the kernel cuts UDP super-packets of packet sockets, as far as is known here. Linux before 6.2
  /// refuses them: `flush` then cuts those that are queued itself.
  bool kernel_cuts() const { return kernel_cuts_; }
  std::uint64_t refused_cuts() const { return refused_cuts_; }
  /// Sends one over loopback, to nobody, to find out. std::system_error if that cannot be tried.
  static bool try_kernel_cuts();

  /// Frames that can still be queued.
  std::size_t room() const { return kBatch - bulk_.queued; }
  MutableBytes slot() { return bulk_.slots[bulk_.queued].bytes; }
  /// The frame in `slot` is complete.
  void commit(std::size_t size, const Offload& offload);
  /// Likewise, and it passes whatever waits in the interface's queue, where that has bands (pfifo_fast,
  /// prio). False: it is too long or too many wait here, and nothing was done.
  bool commit_urgent(std::size_t size, const Offload& offload);
  enum class Sent {
    kAll,
    kBlocked,
    kNoBuffers
  };  // blocked: wait for EPOLLOUT; no buffers: the queue is full, try later
  Sent flush();

  /// Hands over what has arrived, at most a few batches; false if there may be more.
  bool receive(const std::function<void(Bytes, const Offload&)>& handle);

 private:
  static constexpr std::size_t kBatch = 32;
  static constexpr std::size_t kSlot = 65'536 + kEthernetSize, kUrgentSlot = 512;

  struct Slot {
    Offload offload;
    iovec parts[2];
    std::vector<std::byte> bytes;
  };
  /// Frames in the order in which they come or go.
  struct Lane {
    explicit Lane(std::size_t slot_bytes, int packet_priority = 0);
    void commit(std::size_t size, const Offload& offload);

    const int priority;
    std::array<Slot, kBatch> slots;
    std::array<mmsghdr, kBatch> messages{};
    std::size_t queued = 0, sent = 0;
    std::optional<Segments> cut{};        // of the next frame, while it leaves in pieces
    std::optional<MutableBytes> piece{};  // of it
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
  int priority_ = 0;  // of what is sent next
  bool kernel_cuts_ = true;
  std::uint64_t refused_cuts_ = 0;
};

}  // namespace railweave
