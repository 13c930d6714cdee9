// SPDX-License-Identifier: Apache-2.0
#include "rails/tcp_transport.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace railweave {
namespace {

constexpr std::size_t kSpareHandshakes = 16;  // beyond one per rank; so many strangers may knock at once

}  // namespace

bool TcpHandshake::send(const Hello& hello) {
  const auto bytes = encode(hello);
  const ssize_t size = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return size == static_cast<ssize_t>(bytes.size());  // an empty socket takes it whole
}

TcpHandshake::Heard TcpHandshake::hear() {
  const ssize_t size =
      recv(socket_.fd(), incoming_.data() + received_, incoming_.size() - received_, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kNothingYet;
  if (size <= 0) return Heard::kNonsense;
  received_ += static_cast<std::size_t>(size);
  if (received_ < incoming_.size()) return Heard::kNothingYet;
  const auto hello = decode_hello(incoming_.data());
  hello_ = hello.value_or(Hello{});
  return hello ? Heard::kHello : Heard::kNonsense;
}

TcpTransport::TcpTransport(EventLoop& loop, const TcpTransportOptions& options)
    : loop_(loop),
      options_(options),
      listening_(listen_on(options.local, options.port)),
      port_(port_of(listening_)) {}

TcpTransport::~TcpTransport() {
  for (const auto& handshake : handshakes_) loop_.unwatch(handshake->socket().fd());
  if (hello_.world_size > 0) loop_.unwatch(listening_.fd());
}

void TcpTransport::connect(std::uint64_t token, int rank, const std::vector<SocketAddress>& members,
                           Time now) {
  hello_ = {.token = token,
            .rank = static_cast<std::uint32_t>(rank),
            .world_size = static_cast<std::uint32_t>(members.size())};
  members_ = members;
  connections_.resize(members.size());
  loop_.watch(listening_.fd(), EPOLLIN, *this);
  for (int peer = 0; peer < rank; ++peer)
    add_handshake(dial(options_.local, members[peer]), peer, EPOLLOUT, now);
}

std::vector<int> TcpTransport::missing() const {
  std::vector<int> ranks;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (peer != rank() && !connections_[peer]) ranks.push_back(peer);
  }
  return ranks;
}

void TcpTransport::on_ready(std::uint32_t, Time now) {
  while (Socket socket = accept_from(listening_)) {
    if (handshakes_.size() >= members_.size() + kSpareHandshakes) {
      ++strangers_;
      continue;
    }
    add_handshake(std::move(socket), -1, EPOLLIN, now);
  }
}

void TcpTransport::add_handshake(Socket socket, int peer, std::uint32_t events, Time now) {
  const Time deadline =
      peer < 0 ? now + options_.hello_timeout : kNever;  // the caller of `connect` has one of its own
  TcpHandshake::Owner& owner = *this;
  auto& handshake =
      handshakes_.emplace_back(std::make_unique<TcpHandshake>(owner, std::move(socket), peer, deadline));
  loop_.watch(handshake->socket().fd(), events, *handshake);
}

Socket TcpTransport::remove_handshake(TcpHandshake& handshake) {
  loop_.unwatch(handshake.socket().fd());
  Socket socket = std::move(handshake.socket());
  std::erase_if(handshakes_, [&handshake](const auto& held) { return held.get() == &handshake; });
  return socket;
}

void TcpTransport::handshake_ready(TcpHandshake& handshake, std::uint32_t events) {
  if (events & EPOLLOUT) return greet(handshake);
  switch (handshake.hear()) {
    case TcpHandshake::Heard::kNothingYet:
      return;
    case TcpHandshake::Heard::kNonsense:
      return refuse(handshake);
    case TcpHandshake::Heard::kHello:
      break;
  }
  const bool incoming = handshake.peer() < 0;
  if (!is_peer(handshake) || (incoming && !handshake.send(hello_))) return refuse(handshake);
  const int peer = static_cast<int>(handshake.heard().rank);
  Socket socket = remove_handshake(handshake);
  tune(socket);
  TransportListener& listener = *this;
  connections_[peer] = std::make_unique<TcpConnection>(loop_, rank(), peer, name_of(peer), std::move(socket),
                                                       listener, options_.liveness);
}

void TcpTransport::greet(TcpHandshake& handshake) {
  const int error = pending_error(handshake.socket());
  if (error == 0 && handshake.send(hello_)) {
    return loop_.rewatch(handshake.socket().fd(), EPOLLIN, handshake);
  }
  const int peer = handshake.peer();
  remove_handshake(handshake);
  failed({.kind = FailureKind::kPeerLost,
          .rank = peer,
          .message = "cannot connect to " + name_of(peer) + ": " + std::strerror(error)},
         EventLoop::now());
}

void TcpTransport::refuse(TcpHandshake& handshake) {
  ++strangers_;
  const int peer = handshake.peer();
  remove_handshake(handshake);
  if (peer < 0) return;
  failed({.kind = FailureKind::kPeerLost,
          .rank = peer,
          .message = name_of(peer) +
                     " does not answer as a rank of this job: it has failed, or the address is another's"},
         EventLoop::now());
}

// Lower ranks are dialled, higher ones come in, each once.
bool TcpTransport::is_peer(const TcpHandshake& handshake) const {
  const Hello& heard = handshake.heard();
  if (heard.token != hello_.token || heard.world_size != hello_.world_size) return false;
  if (handshake.peer() >= 0) return heard.rank == static_cast<std::uint32_t>(handshake.peer());
  return heard.rank > hello_.rank && heard.rank < hello_.world_size && !connections_[heard.rank];
}

std::string TcpTransport::name_of(int peer) const {
  return "rank " + std::to_string(peer) + " at " + to_string(members_[peer]);
}

Time TcpTransport::deadline() const {
  Time next = kNever;
  for (const auto& handshake : handshakes_) next = std::min(next, handshake->deadline());
  for (const auto& connection : connections_) {
    if (connection) next = std::min(next, connection->deadline());
  }
  return next;
}

void TcpTransport::expire(Time now) {
  const auto late = [now](const auto& handshake) { return handshake->deadline() <= now; };
  for (auto found = handshakes_.begin();
       (found = std::find_if(handshakes_.begin(), handshakes_.end(), late)) != handshakes_.end();) {
    refuse(**found);
  }
  for (const auto& connection : connections_) {
    if (connection && connection->deadline() <= now) connection->expire(now);
  }
}

void TcpTransport::begin(const MessageLabel& label, Time now) {
  for (const auto& connection : connections_) {
    if (connection) connection->begin(label, now);
  }
}

void TcpTransport::pass_over(const CallDescription& call, Time now) {
  for (const auto& connection : connections_) {
    if (connection) connection->pass_over(call, now);
  }
}

bool TcpTransport::hears(int peer, Time now) const {
  const auto& connection = connections_.at(static_cast<std::size_t>(peer));
  return connection && connection->hears(now);
}

void TcpTransport::failed(const Failure& failure, Time now) {
  if (!std::exchange(failed_, true)) listener_->failed(failure, now);
}

void TcpTransport::announce(const Failure& failure, Time now) {
  for (const auto& connection : connections_) {
    if (connection) connection->announce(failure, now);
  }
}

void TcpTransport::abort() {
  failed_ = true;
  for (const auto& connection : connections_) {
    if (connection) connection->abort();
  }
}

void TcpTransport::close(Time now) {
  for (const auto& connection : connections_) {
    if (connection) connection->close(now);
  }
}

bool TcpTransport::closed() const {
  return std::all_of(connections_.begin(), connections_.end(),
                     [](const auto& connection) { return !connection || connection->closed(); });
}

RailStats TcpTransport::stats() const {
  RailStats stats;
  for (const auto& connection : connections_) {
    if (connection) connection->add_counts(stats);
  }
  stats.malformed = strangers_;
  return stats;
}

}  // namespace railweave
