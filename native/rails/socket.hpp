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

/// Where a rail's sockets live. An empty interface binds to none; then the address alone decides.
struct LocalInterface {
  std::string address;
  std::string interface;
  bool mptcp = false;  // streams are Multipath TCP's, over the paths that the host's endpoints allow
};

// All sockets are non-blocking. A socket that cannot be made throws std::system_error, which names address
// and interface and says what to do. So does a text that is no IPv4 address.
Descriptor listen_on(const LocalInterface& local, std::uint16_t port);  // 0: any free one
/// UDP, bound. Sockets on a `shared` port must all be opened so.
Descriptor datagrams_on(const LocalInterface& local, std::uint16_t port, bool shared = false);
void share_port(const Descriptor& socket);
Descriptor dial(const LocalInterface& local,
                const SocketAddress& remote);  // connecting; writable when it is done
/// What a listener has: a connection, nobody, or no way to take one. Connections that have broken before they
/// were taken are passed over.
struct Accepted {
  Descriptor socket;       // empty: see `exhausted`
  std::uint32_t from = 0;  // IPv4 address, in network order
  /// The process or the machine has no descriptor or memory left: whoever waits goes on waiting, and the
  /// listener stays readable.
  bool exhausted = false;
};
Accepted accept_from(const Descriptor& listener);
sockaddr_in ipv4(const SocketAddress& at);
/// The interface's index now; 0 if there is none of that name. One that is deleted and made anew gets
/// another, and sockets that were bound to the old one hear and reach nobody any more.
unsigned interface_index(const std::string& interface);
std::uint16_t port_of(const Descriptor& socket);
/// What `open` returns. It opens a port of TCP and the same port of UDP, of which one may be taken: then it
/// tries another port.
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
/// What waits in the kernel is thrown away when the socket is closed, and the peer told that it is.
void reset_on_close(const Descriptor& socket);
/// No delay for small messages, and bounds on what waits in the kernel. Of Multipath TCP, the kernel alone
/// bounds the window: it grows with the paths.
void tune(const Descriptor& socket);
/// Whether an error of a connection says that the other end's process is gone; else the path may be.
bool closed_by_peer(int error);
/// Around a segment's payload: Ethernet, IPv4, TCP, TCP timestamps.
inline constexpr std::uint64_t kTcpHeaders = 14 + 20 + 20 + 12;
/// Adds what this connection has put on the wire, by the kernel's own count, with Ethernet, IPv4 and TCP
/// headers. Returns the bytes of the stream that have left, each once; what waits in the socket has, too,
/// unless the connection was `reset`. Of Multipath TCP, only the first path is counted.
std::uint64_t add_wire_counts(const Descriptor& socket, bool reset, RailStats& stats);

}  // namespace railweave
