// SPDX-License-Identifier: Apache-2.0
// A rail's few and small datagrams between the ranks' agents. The source address identifies the sender.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "core/bytes.hpp"
#include "loop/event_loop.hpp"
#include "rails/socket.hpp"

namespace railweave {

/// UDP on one interface, marked as network control (DSCP CS6), so that it passes queues of data. Datagrams
/// from addresses of no rank are discarded.
class ControlSocket final : public ReadyHandler {
 public:
  using Handler = std::function<void(int rank, Bytes datagram, Time now)>;

  static constexpr std::size_t kMostBytes = 8192;

  /// Binds the socket. `received` gets the datagrams of ranks. `unreachable` gets the datagram that an ICMP
  /// port unreachable quotes, and its destination rank. That rank's process may no longer listen. Throws
  /// std::system_error that names address and interface.
  ControlSocket(EventLoop& loop, const LocalInterface& at, std::uint16_t port, Handler received,
                Handler unreachable);
  ~ControlSocket() override;

  /// Sets the addresses by rank, and starts to receive. Throws std::system_error for an invalid IPv4 address.
  void introduce(const std::vector<SocketAddress>& members);
  /// Binds the socket again if another interface now has its interface's name. Returns whether it did. Throws
  /// std::system_error while it cannot.
  bool follow_interface();
  /// Sends without waiting. Returns the bytes on the link, headers included. A datagram that the kernel
  /// refuses is lost, and the result is 0.
  std::size_t send(int rank, Bytes datagram);
  /// Number of datagrams from addresses of no rank, or longer than kMostBytes.
  std::uint64_t strangers() const { return strangers_; }
  /// Passes the received datagrams to `received`.
  void drain(Time now);
  void on_ready(std::uint32_t events, Time now) override {
    if (events & EPOLLERR) drain_errors(now);
    drain(now);
  }

 private:
  void drain_errors(Time now);
  static std::uint64_t key(const sockaddr_in& at) {
    return std::uint64_t{at.sin_addr.s_addr} << 16 | at.sin_port;
  }

  EventLoop& loop_;
  const LocalInterface at_;
  const std::uint16_t port_;
  unsigned interface_;  // its index
  Descriptor socket_;
  const Handler received_, unreachable_;
  std::vector<sockaddr_in> members_;
  std::unordered_map<std::uint64_t, int> ranks_;
  std::uint64_t strangers_ = 0;
};

}  // namespace railweave
