// SPDX-License-Identifier: Apache-2.0
// A TCP connection until both ends have proved who they are.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "loop/event_loop.hpp"
#include "rails/socket.hpp"
#include "rails/tcp_frame.hpp"

namespace railweave {

class TcpTransport;

class TcpHandshake final : public ReadyHandler {
 public:
  enum class Stage {
    kDialled,   // this rank has dialled, and the peer has not answered
    kAccepted,  // the peer has sent no hello yet
    kAnswered,  // this rank has answered the peer's hello, and the peer must prove it
  };

  /// `peer` is the rank that is dialled, or -1 for an incoming connection.
  TcpHandshake(TcpTransport& transport, Descriptor socket, int peer, std::uint32_t from, Time deadline)
      : transport_(transport),
        socket_(std::move(socket)),
        peer_(peer),
        from_(from),
        stage_(peer >= 0 ? Stage::kDialled : Stage::kAccepted),
        deadline_(deadline) {}

  int peer() const { return peer_; }
  std::uint32_t from() const { return from_; }
  Stage stage() const { return stage_; }
  bool dialled() const { return stage_ == Stage::kDialled; }
  Time deadline() const { return deadline_; }
  void set_deadline(Time deadline) { deadline_ = deadline; }
  Descriptor& socket() { return socket_; }

  enum class Heard { kNothingYet, kMessage, kEnd };
  /// Continues to read, up to the end of the next message.
  Heard hear() {
    const std::size_t size = stage_ == Stage::kAnswered ? sizeof(Mac) : kHelloSize;
    const ssize_t got = recv(socket_.get(), incoming_.data() + received_, size - received_, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kNothingYet;
    if (got <= 0) return Heard::kEnd;
    received_ += static_cast<std::size_t>(got);
    return received_ < size ? Heard::kNothingYet : Heard::kMessage;
  }
  const std::byte* message() const { return incoming_.data(); }

  /// The first hello of this connection: this rank's if it dials, else the peer's.
  const Hello& first() const { return first_; }
  void set_first(const Hello& hello) { first_ = hello; }
  /// Notes that this rank has answered the peer's hello.
  void answered(const Hello& answer) {
    peer_ = static_cast<int>(first_.rank);
    answer_ = answer;
    stage_ = Stage::kAnswered;
    received_ = 0;
  }
  const Hello& answer() const { return answer_; }

  void on_ready(std::uint32_t events, Time now) override;

 private:
  TcpTransport& transport_;
  Descriptor socket_;
  int peer_;
  std::uint32_t from_;  // address of an incoming connection
  Stage stage_;
  Time deadline_;
  std::array<std::byte, kHelloSize> incoming_;
  std::size_t received_ = 0;
  Hello first_{};
  Hello answer_{};
};

/// Returns false if the connection is broken.
inline bool send_whole(const Descriptor& socket, Bytes bytes) {
  const ssize_t size = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return size == static_cast<ssize_t>(bytes.size());  // an almost empty send buffer takes all bytes
}

}  // namespace railweave
