// SPDX-License-Identifier: Apache-2.0
#include "rails/tcp_handshake.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace railweave {

TcpHandshake::Heard TcpHandshake::hear() {
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

bool send_hello(const Descriptor& socket, const Hello& hello) {
  const auto bytes = encode(hello);
  const ssize_t size = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return size == static_cast<ssize_t>(bytes.size());  // an empty socket takes it whole
}

}  // namespace railweave
