// SPDX-License-Identifier: Apache-2.0
// A TCP connection before both ends know who the other is.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cerrno>

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
  Heard hear() {
    const ssize_t size =
        recv(socket_.get(), incoming_.data() + received_, incoming_.size() - received_, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kNothingYet;
    if (size <= 0) return Heard::kNonsense;
    received_ += static_cast<std::size_t>(size);
    if (received_ < incoming_.size()) return Heard::kNothingYet;
    const auto hello = decode_hello(incoming_.data());
    hello_ = hello.value_or(Hello{});
    return hello ? Heard::kHello : Heard::kNonsense;
  }
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
inline bool send_hello(const Descriptor& socket, const Hello& hello) {
  const auto bytes = encode(hello);
  const ssize_t size = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return size == static_cast<ssize_t>(bytes.size());  // an empty socket takes it whole
}

}  // namespace railweave
