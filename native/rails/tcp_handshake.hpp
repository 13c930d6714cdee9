// SPDX-License-Identifier: Apache-2.0
// A TCP connection before both ends know who the other is.
#pragma once

#include <array>

#include "loop/event_loop.hpp"
#include "rails/socket.hpp"
#include "rails/tcp_frame.hpp"

namespace railweave {

class TcpHandshake final : public ReadyHandler {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void handshake_ready(TcpHandshake& handshake, std::uint32_t events, Time now) = 0;
  };

  /// `peer` is the rank that is dialled, or -1 for a connection that has come in.
  TcpHandshake(Owner& owner, Descriptor socket, int peer, Time deadline)
      : owner_(owner), socket_(std::move(socket)), peer_(peer), deadline_(deadline) {}

  int peer() const { return peer_; }
  bool dialled() const { return peer_ >= 0; }
  Time deadline() const { return deadline_; }
  void set_deadline(Time deadline) { deadline_ = deadline; }
  Descriptor& socket() { return socket_; }

  enum class Heard { kNothingYet, kHello, kNonsense };
  /// Reads on; `hello` says what was heard.
  Heard hear();
  const Hello& hello() const { return hello_; }

  void on_ready(std::uint32_t events, Time now) override { owner_.handshake_ready(*this, events, now); }

 private:
  Owner& owner_;
  Descriptor socket_;
  int peer_;
  Time deadline_;
  std::array<std::byte, kHelloSize> incoming_;
  std::size_t received_ = 0;
  Hello hello_{};
};

/// Into a connection that has said nothing yet; false: it is broken.
bool send_hello(const Descriptor& socket, const Hello& hello);

}  // namespace railweave
