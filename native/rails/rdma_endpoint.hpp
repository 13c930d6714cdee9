// SPDX-License-Identifier: Apache-2.0
// A device in user space: the queue pairs of one process on one interface, and the socket that they share.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rails/frame_socket.hpp"
#include "rails/rdma_device.hpp"
#include "roce/queue_pair.hpp"

namespace railweave {

/// The specification reserves the lowest queue pair numbers, and kernel drivers usually take the next ones.
inline constexpr std::uint32_t kFirstFreeNumber = 0x100;

struct RdmaEndpointOptions {
  std::string interface;
  roce::Ipv4Address address = 0;
  std::size_t path_mtu = 1024;
  std::size_t burst_bytes =
      48 * 1024;  // largest super-packet; small on slow links, where it would delay other packets
};

class RdmaEndpoint final : public RdmaDevice {
 public:
  /// Throws as FrameSocket does, and std::invalid_argument on impossible options.
  explicit RdmaEndpoint(const RdmaEndpointOptions& options);

  const roce::MacAddress& mac() const { return socket_->mac(); }
  /// The MAC address of `address` on the interface's link, if the kernel knows it.
  std::optional<roce::MacAddress> neighbour(roce::Ipv4Address address) const {
    return socket_->neighbour(address);
  }
  /// True if the interface is gone, or another one has its name now. Then no packet passes until `reopen`.
  bool outdated() const { return socket_->outdated(); }
  /// Switches to the interface that has the name now. No queue pair may exist. `fd` and `mac` change. Returns
  /// the old socket, which the caller closes. Throws as the constructor, and then keeps the old socket.
  std::unique_ptr<FrameSocket> reopen();
  roce::MemoryRegions& memory() { return memory_; }
  /// Returns a random number that no queue pair here has or has reserved.
  std::uint32_t reserve_queue_pair_number() override;
  /// The endpoint's path MTU replaces `options.path_mtu`. The reference stays valid until `disconnect`.
  roce::QueuePair& connect(roce::QueuePairOptions options, roce::Ipv4Address peer,
                           const roce::MacAddress& peer_mac);

  std::string where() const override { return "in user space"; }
  bool keeps_numbers() const override { return false; }
  RdmaConnection& join(const roce::QueuePairOptions& options, roce::Ipv4Address peer,
                       const roce::MacAddress& peer_mac, Time now) override;
  void disconnect(std::uint32_t number) override;
  void expect(std::uint32_t number) override { connections_.try_emplace(number); }
  void release(std::uint32_t number) override { connections_.erase(number); }

  int fd() const override { return socket_->fd(); }
  bool receive(Time now) override;
  void transmit(Time now) override;
  bool blocked() const override { return blocked_; }
  void on_writable() override { blocked_ = false; }
  /// Never too late. It may be too early after a queue pair has postponed its timer.
  Time deadline() const override { return deadline_; }
  void expire(Time now) override;
  const RdmaEndpointStats& stats() const override { return stats_; }

 private:
  struct Connection {
    roce::Path path;
    std::unique_ptr<roce::QueuePair> queue_pair;
    std::unique_ptr<RdmaConnection> joined;  // `queue_pair` as the RDMA rail sees it
    bool in_order = false;  // the interface's queue may hold requests; others must not overtake them
  };

  void on_packet(const roce::OpenedFrame& opened, Time now);
  bool fill_slots(Connection& connection, Time now);
  bool flush(Time now);

  const RdmaEndpointOptions options_;
  std::unique_ptr<FrameSocket> socket_;
  roce::MemoryRegions memory_;
  std::map<std::uint32_t, Connection> connections_;  // by own number; reserved ones have no queue pair yet
  std::uint16_t next_ip_id_ = 0;
  bool blocked_ = false;
  Time retry_at_ = kNever;  // the interface's queue was full
  Time deadline_ = kNever;
  RdmaEndpointStats stats_;
  std::uint64_t refused_before_ = 0;  // super-packets that earlier sockets refused
};

}  // namespace railweave
