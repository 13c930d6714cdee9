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

/// Low queue pair numbers are the specification's and, by habit, the kernel's.
inline constexpr std::uint32_t kFirstFreeNumber = 0x100;

struct RdmaEndpointOptions {
  std::string interface;
  roce::Ipv4Address address = 0;
  std::size_t path_mtu = 1024;
  std::size_t burst_bytes =
      48 * 1024;  // largest super-packet; small on slow links, where it would hold up others
};

class RdmaEndpoint final : public RdmaDevice {
 public:
  /// Throws as FrameSocket does, and std::invalid_argument on impossible options.
  explicit RdmaEndpoint(const RdmaEndpointOptions& options);

  const roce::MacAddress& mac() const { return socket_->mac(); }
  /// Who has this address on the interface's link, as far as the kernel knows.
  std::optional<roce::MacAddress> neighbour(roce::Ipv4Address address) const {
    return socket_->neighbour(address);
  }
  /// Whether another interface has come under the name of the one that is in use, or none: then nothing
  /// passes until `reopen`.
  bool outdated() const { return socket_->outdated(); }
  /// The interface that has the name now; there are no queue pairs. `fd` and `mac` change, the old socket is
  /// the caller's to close. Throws as the constructor, and leaves everything as it was.
  std::unique_ptr<FrameSocket> reopen();
  roce::MemoryRegions& memory() { return memory_; }
  /// A random number that no queue pair here has or has been promised.
  std::uint32_t reserve_queue_pair_number() override;
  /// `options.path_mtu` is the endpoint's. The reference stays valid.
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
  /// Never late; early where a queue pair's timer was put off.
  Time deadline() const override { return deadline_; }
  void expire(Time now) override;
  const RdmaEndpointStats& stats() const override { return stats_; }

 private:
  struct Connection {
    roce::Path path;
    std::unique_ptr<roce::QueuePair> queue_pair;
    std::unique_ptr<RdmaConnection> joined;  // the same, as RDMA rails see it
    bool in_order = false;  // requests may stand in the interface's queue, which others must not pass
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
  std::uint64_t refused_before_ = 0;  // super-packets, by sockets that are no more
};

}  // namespace railweave
