// SPDX-License-Identifier: Apache-2.0
// A UDP socket with one or a few remotes. It sends and receives batches, in which runs of datagrams form
// super-packets (UDP_SEGMENT, UDP_GRO).
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
  /// Binds to the address and interface of `local` and to `port` (0: any). An empty interface is ignored.
  /// Throws std::runtime_error that names the invalid part and the reason.
  DatagramSocket(LocalInterface local, std::uint16_t port);

  int fd() const { return socket_.get(); }
  std::uint16_t port() const { return port_; }
  /// Opens another such socket on the same port, which shares arriving datagrams. Throws as the constructor.
  DatagramSocket open_shared();
  bool shared() const { return shared_; }
  /// Distributes datagrams among the sockets that share the port, numbered in order of opening. `sockets`
  /// pairs a value at `offset` with the socket for it. The first socket gets all other datagrams. The first
  /// datagram decides for its super-packet. Repeat after `reopen` of all sockets. Throws std::runtime_error.
  void steer_by_group(std::uint32_t offset,
                      const std::vector<std::pair<std::uint16_t, std::uint32_t>>& sockets) const;
  /// Whether another interface now has the name of the socket's interface, or no interface has it. Then
  /// nothing passes until `reopen`.
  bool outdated() const { return interface_index(local_.interface) != interface_; }
  /// Opens the same port, with the same options, on the interface that has the name now. `fd` changes.
  /// Returns the old socket, which the caller closes. Throws as the constructor, and then changes nothing.
  Descriptor reopen();
  /// From now on datagrams go only to these remotes and come only from them: always one, or always several.
  /// While a remote cannot be reached, its datagrams are dropped. Throws std::runtime_error for an invalid
  /// address.
  void set_remotes(const std::vector<SocketAddress>& remotes);
  const std::string& interface() const { return local_.interface; }
  /// The largest datagram for the MTU of the routes to the remotes. Nothing if the kernel knows no route.
  std::optional<std::size_t> largest_datagram() const;
  /// Lets datagrams of one size leave together, up to `bytes` on the wire.
  void set_super_packets(std::size_t bytes) { super_bytes_ = bytes; }
  /// Whether packets from now on let other traffic pass, in queues that know the code point CS1 (RFC 3662).
  void set_lower_effort(bool lower);
  bool lower_effort() const { return lower_effort_; }
  /// Room in the kernel for `bytes` of datagrams in each direction, as far as the system allows.
  void set_buffers(std::size_t bytes);

  /// Sends `datagrams` in order to the `remote`-th address, until the kernel takes no more. Returns how many
  /// are gone: sent, or dropped because the kernel refused them. `urgent` marks them as network control
  /// (CS6), which passes queues of data. `on_sent` gets the datagrams that the kernel has taken.
  std::size_t send(std::span<const Bytes> datagrams, std::size_t remote = 0, bool urgent = false,
                   const std::function<void(std::span<const Bytes>)>& on_sent = {});
  /// Takes one batch of arrived datagrams and passes each to `take`. Returns false if there were no more.
  bool receive(const std::function<void(Bytes)>& take);

  /// Every datagram of a super-packet counts with its own headers. Super-packets from strangers count as
  /// malformed, unless the kernel filters them.
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
  bool shared_;         // the port is shared
  unsigned interface_;  // its index
  Descriptor socket_;
  std::size_t super_bytes_ = 0;
  std::size_t buffers_ = 0;
  bool lower_effort_ = false;
  std::vector<sockaddr_in> remotes_;
  bool connected_ = false;  // to the only remote
  RailStats stats_;
  std::vector<std::byte> arena_;  // where recvmmsg writes
};

}  // namespace railweave
