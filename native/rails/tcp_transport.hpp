// SPDX-License-Identifier: Apache-2.0
// Transport over TCP: one connection per pair of ranks, all on one interface.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "collectives/transport.hpp"
#include "loop/event_loop.hpp"
#include "rails/socket.hpp"
#include "rails/tcp_connection.hpp"
#include "rails/tcp_frame.hpp"

namespace railweave {

struct TcpTransportOptions {
  LocalInterface local;
  std::uint16_t port = 0;  // to listen on; 0: any free one
  Liveness liveness = {};
  Duration hello_timeout = 5 * kSecond;  // a connection that does not say who it is for so long is closed
};

/// A socket whose other end has not yet said who it is.
class TcpHandshake final : public ReadyHandler {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void handshake_ready(TcpHandshake& handshake, std::uint32_t events) = 0;
  };

  /// `peer` is the rank that is dialled, or -1 for a connection that has come in.
  TcpHandshake(Owner& owner, Socket socket, int peer, Time deadline)
      : owner_(owner), socket_(std::move(socket)), peer_(peer), deadline_(deadline) {}

  int peer() const { return peer_; }
  Time deadline() const { return deadline_; }
  Socket& socket() { return socket_; }
  bool send(const Hello& hello);  // false: the connection is broken
  enum class Heard { kNothingYet, kHello, kNonsense };
  Heard hear();
  const Hello& heard() const { return hello_; }
  void on_ready(std::uint32_t events, Time) override { owner_.handshake_ready(*this, events); }

 private:
  Owner& owner_;
  Socket socket_;
  int peer_;
  Time deadline_;
  std::array<std::byte, kHelloSize> incoming_;
  std::size_t received_ = 0;
  Hello hello_{};
};

/// Listens from the start. `connect` dials all lower ranks and waits for all higher ones; connections that
/// cannot say the job's token and their rank are closed and counted as malformed. If a peer goes, all is
/// over: kPeerLost names it.
class TcpTransport final : public Transport,
                           private TransportListener,
                           private TcpHandshake::Owner,
                           private ReadyHandler {
 public:
  TcpTransport(EventLoop& loop, const TcpTransportOptions& options);
  ~TcpTransport() override;

  std::uint16_t port() const { return port_; }
  /// `members` are the listening sockets of all ranks, in order; own place is ignored. A dial that fails:
  /// std::system_error.
  void connect(std::uint64_t token, int rank, const std::vector<SocketAddress>& members, Time now);
  std::vector<int> missing() const;  // ranks to which there is no connection yet

  std::string_view kind() const override { return "tcp"; }
  int world_size() const override { return static_cast<int>(hello_.world_size); }
  int rank() const override { return static_cast<int>(hello_.rank); }
  void set_listener(TransportListener* listener) override { listener_ = listener; }
  void begin(const MessageLabel& label, Time now) override;
  void pass_over(const CallDescription& call, Time now) override;
  bool hears(int peer, Time now) const override;
  void post_send(int peer, Bytes data, Time now) override { connections_[peer]->post_send(data, now); }
  void post_receive(int peer, MutableBytes into, Time now) override {
    connections_[peer]->post_receive(into, now);
  }
  Time deadline() const override;
  void expire(Time now) override;
  void announce(const Failure& failure, Time now) override;
  void abort() override;
  void close(Time now) override;
  bool closed() const override;
  RailStats stats() const override;

 private:
  void sent(int peer, Time now) override { listener_->sent(peer, now); }
  void received(int peer, Time now) override { listener_->received(peer, now); }
  void left(int peer, Time now) override { listener_->left(peer, now); }
  std::optional<MessageLabel> pending_label(const SliceKey& key) const override {
    return listener_->pending_label(key);
  }
  void failed(const Failure& failure, Time now) override;
  void on_ready(std::uint32_t events, Time now) override;
  void handshake_ready(TcpHandshake& handshake, std::uint32_t events) override;

  void add_handshake(Socket socket, int peer, std::uint32_t events, Time now);
  Socket remove_handshake(TcpHandshake& handshake);
  void greet(TcpHandshake& handshake);
  void refuse(TcpHandshake& handshake);
  bool is_peer(const TcpHandshake& handshake) const;
  std::string name_of(int peer) const;

  EventLoop& loop_;
  const TcpTransportOptions options_;
  Socket listening_;
  const std::uint16_t port_;
  TransportListener* listener_ = nullptr;
  Hello hello_{};  // own; world size 0: not connected yet
  std::vector<SocketAddress> members_;
  std::vector<std::unique_ptr<TcpHandshake>> handshakes_;
  std::vector<std::unique_ptr<TcpConnection>> connections_;  // by rank
  std::uint64_t strangers_ = 0;
  bool failed_ = false;
};

}  // namespace railweave
