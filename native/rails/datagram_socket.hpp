// SPDX-License-Identifier: Apache-2.0
// A UDP socket with one remote or a few, in batches: runs of datagrams leave and arrive as super-packets
// (UDP_SEGMENT, UDP_GRO).
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "core/rail_stats.hpp"
#include "rails/socket.hpp"

namespace railweave {

class DatagramSocket {
 public:
  /// Binds to `address` and `port` (0: any), and to `interface` unless it is empty. Throws std::runtime_error
  /// that says what is wrong with which of them.
  DatagramSocket(LocalInterface local, std::uint16_t port);

  int fd() const { return socket_.get(); }
  std::uint16_t port() const { return port_; }
  /// One more socket on the same port, alike: they share what arrives. Throws as the constructor.
  DatagramSocket open_shared();
  bool shared() const { return shared_; }
  /// Of the sockets that share the port, numbered as they were made, the one that is given with a value gets
  /// the datagrams that have this value at `offset`; the first gets all others. Of a super-packet its first
  /// datagram counts. After `reopen` of all of them again. Throws std::runtime_error.
  void steer_by_group(std::uint32_t offset,
                      const std::vector<std::pair<std::uint16_t, std::uint32_t>>& sockets) const;
  /// Whether another interface has come under the name of the one that the socket is bound to, or none: then
  /// nothing passes until `reopen`.
  bool outdated() const { return interface_index(local_.interface) != interface_; }
  /// The same port of the interface that has the name now, with all that was set; `fd` changes, the old
  /// socket is the caller's to close. Throws as the constructor, and leaves everything as it was.
  Descriptor reopen();
  /// From now on datagrams go to, and come only from, these: always one, or always several. While there is no
  /// way to one, its datagrams are dropped. Throws std::runtime_error for what is no address.
  void set_remotes(const std::vector<SocketAddress>& remotes);
  const std::string& interface() const { return local_.interface; }
  /// The largest datagram that fits the MTU of the routes to the remotes; nothing where the kernel knows
  /// none.
  std::optional<std::size_t> largest_datagram() const;
  /// Datagrams of one size may leave together, as long as they take up to so many bytes of the wire.
  void set_super_packets(std::size_t bytes) { super_bytes_ = bytes; }
  /// Whether what is sent from now on lets other traffic pass, where queues know its code point (CS1, RFC
  /// 3662).
  void set_lower_effort(bool lower);
  bool lower_effort() const { return lower_effort_; }
  /// Room in the kernel for `bytes` of datagrams in each direction, as far as the system allows.
  void set_buffers(std::size_t bytes);

  /// Sends from the front of `datagrams` to the `remote`-th of the addresses until the kernel takes no more;
  /// returns how many are gone: sent, or dropped because the kernel refused them. `urgent`: as network
  /// control (CS6), which passes queues of data. `on_sent` gets the datagrams that the kernel has taken.
  std::size_t send(std::span<const Bytes> datagrams, std::size_t remote = 0, bool urgent = false,
                   const std::function<void(std::span<const Bytes>)>& on_sent = {});
  /// Takes one batch of what has arrived and hands over each datagram. False if there was no more.
  bool receive(const std::function<void(Bytes)>& take);

  /// Every datagram of a super-packet has headers of its own on the link. Super-packets from strangers count
  /// as malformed, where the kernel does not refuse them itself.
  const RailStats& stats() const { return stats_; }

 private:
  struct SendBatch;
  struct ReceiveBatch;

  DatagramSocket(LocalInterface local, std::uint16_t port, bool shared);
  Descriptor open() const;
  void apply_options() const;
  static std::size_t group(std::span<const Bytes> datagrams, std::size_t most_bytes);
  bool is_remote(const sockaddr_in& sender) const;
  bool connects() const { return remotes_.size() == 1 && !shared_; }
  void connect_to_one();

  const LocalInterface local_;
  std::uint16_t port_;
  bool shared_;         // the port
  unsigned interface_;  // its index
  Descriptor socket_;
  std::size_t super_bytes_ = 0;
  std::size_t buffers_ = 0;
  bool lower_effort_ = false;
  std::vector<sockaddr_in> remotes_;
  bool connected_ = false;  // to the only one
  RailStats stats_;
  std::vector<std::byte> arena_;  // where recvmmsg writes
};

}  // namespace railweave
