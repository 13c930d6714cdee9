// SPDX-License-Identifier: Apache-2.0
// A rail's datagrams between the ranks' agents: small, few, and told apart by who has sent them.
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
/// from addresses that are no rank's are thrown away.
class ControlSocket final : public ReadyHandler {
 public:
  using Handler = std::function<void(int rank, Bytes datagram, Time now)>;

  static constexpr std::size_t kMostBytes = 8192;

  /// Bound at once. `received` gets what comes from a rank. `unreachable` gets the datagram that a port
  /// unreachable quotes, and the rank to which it was sent: that rank's process may listen no more.
  /// std::system_error names address and interface.
  ControlSocket(EventLoop& loop, const LocalInterface& at, std::uint16_t port, Handler received,
                Handler unreachable);
  ~ControlSocket() override;

  /// By rank. From here on datagrams are taken. std::system_error if one is no IPv4 address.
  void introduce(const std::vector<SocketAddress>& members);
  /// Binds anew if another interface has come under the name of the one that the socket is bound to.
  /// std::system_error while that cannot be; true if it was done.
  bool follow_interface();
  /// As far as the network allows now: what is refused is lost. Returns the bytes on the link, headers
  /// included; 0 if it was refused.
  std::size_t send(int rank, Bytes datagram);
  /// Datagrams from addresses that are no rank's, or larger than any.
  std::uint64_t strangers() const { return strangers_; }
  /// Hands over what has come.
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
