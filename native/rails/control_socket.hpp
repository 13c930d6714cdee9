// SPDX-License-Identifier: Apache-2.0
// A rail's datagrams between the ranks' agents: small, few, and told apart by who has sent them.
#pragma once

#include <cstdint>
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
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void received(std::size_t rail, int rank, Bytes datagram, Time now) = 0;
    /// A port unreachable for what was sent to that rank, which it quotes: its process may listen no more.
    virtual void unreachable(std::size_t rail, int rank, Bytes quoted, Time now) = 0;
  };

  static constexpr std::size_t kMostBytes = 8192;

  /// Bound at once. std::system_error names address and interface.
  ControlSocket(EventLoop& loop, Owner& owner, std::size_t rail, const LocalInterface& at,
                std::uint16_t port);
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
  struct Address {
    std::uint32_t host;  // as in network order
    std::uint16_t port;
  };

  void drain_errors(Time now);
  static std::uint64_t key(const Address& at) { return std::uint64_t{at.host} << 16 | at.port; }

  EventLoop& loop_;
  Owner& owner_;
  const std::size_t rail_;
  const LocalInterface at_;
  const std::uint16_t port_;
  unsigned interface_;  // its index
  Descriptor socket_;
  std::vector<Address> members_;
  std::unordered_map<std::uint64_t, int> ranks_;
  std::uint64_t strangers_ = 0;
};

}  // namespace railweave
