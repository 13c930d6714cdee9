// SPDX-License-Identifier: Apache-2.0
// Sockets, bound to one interface.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <system_error>

#include "core/descriptor.hpp"
#include "core/headers.hpp"
#include "core/rail_stats.hpp"

namespace railweave {

/// An IPv4 address in dotted form, and a port.
struct SocketAddress {
  std::string address;
  std::uint16_t port;
};

std::string to_string(const SocketAddress& at);

/// Where a rail's sockets are bound. With an empty interface, only the address decides.
struct LocalInterface {
  std::string address;
  std::string interface;
  bool mptcp = false;  // streams use Multipath TCP, over the paths that the host's endpoints allow
};

// All sockets are non-blocking. If a socket cannot be opened, or an address is no IPv4 address, these
// functions throw std::system_error that names address and interface and says what to do.
Descriptor listen_on(const LocalInterface& local, std::uint16_t port);  // 0: any free one
/// A bound UDP socket. If several sockets use a port, each needs `shared` or `share_port`.
Descriptor datagrams_on(const LocalInterface& local, std::uint16_t port, bool shared = false);
void share_port(const Descriptor& socket);
Descriptor dial(const LocalInterface& local,
                const SocketAddress& remote);  // connecting; writable when done
/// The result of accept: a connection, nothing, or no resources for a connection. Connections that broke
/// before they were accepted are skipped.
struct Accepted {
  Descriptor socket;       // empty: see `exhausted`
  std::uint32_t from = 0;  // IPv4 address, in network order
  /// The process or the machine has no descriptor or memory left. Connections keep waiting, and the listener
  /// stays readable.
  bool exhausted = false;
};
Accepted accept_from(const Descriptor& listener);
sockaddr_in ipv4(const SocketAddress& at);
/// The interface's current index; 0 if no interface has that name. An interface that is deleted and created
/// again gets another index. Sockets that were bound to the old index can no longer send or receive.
unsigned interface_index(const std::string& interface);
std::uint16_t port_of(const Descriptor& socket);
/// Returns the result of `open`, which opens the same port for TCP and UDP. If TCP or UDP has no such free
/// port, `open` is called again and tries another port.
template <typename Open>
auto on_one_port(const Open& open) {
  for (int attempts_left = 15;; --attempts_left) {
    try {
      return open();
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::address_in_use || attempts_left == 0) throw;
    }
  }
}
int pending_error(const Descriptor& socket);  // errno of the connection, 0 if none
/// Makes close() discard the data in the kernel and send a RST to the peer.
void reset_on_close(const Descriptor& socket);
/// Sends small messages without delay, and bounds the data that wait in the kernel. With Multipath TCP only
/// the kernel bounds the window, which grows with the number of paths.
void tune(const Descriptor& socket);
/// Whether a connection's error shows that the peer's process is gone. Otherwise the path may have failed.
bool closed_by_peer(int error);
/// Bytes of headers around a segment's payload: Ethernet, IPv4, TCP, TCP timestamps.
inline constexpr std::uint64_t kTcpHeaders = 14 + 20 + 20 + 12;
/// Adds the bytes of this connection on the wire, by the kernel's count, with Ethernet, IPv4 and TCP headers.
/// Returns the sent bytes of the stream, without retransmissions. Bytes that wait in the socket count as
/// sent, unless the connection was `reset`. With Multipath TCP, only the first path is counted.
std::uint64_t add_wire_counts(const Descriptor& socket, bool reset, RailStats& stats);

}  // namespace railweave
