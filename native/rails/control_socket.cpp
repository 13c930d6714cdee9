// SPDX-License-Identifier: Apache-2.0
#include "rails/control_socket.hpp"

#include <linux/errqueue.h>
#include <linux/icmp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <array>
#include <cerrno>
#include <utility>

namespace railweave {
namespace {

constexpr int kNetworkControl = 0xc0;  // CS6
constexpr int kMostAtOnce = 1024;      // datagrams per turn: a flood must not block the loop
constexpr int kMostErrors = 64;
constexpr std::size_t kMostQuoted = 576;      // bytes of an ICMP error, with all headers (RFC 1812)
constexpr std::size_t kFragmentBytes = 1480;  // of an IPv4 fragment's payload on Ethernet

Descriptor open(const LocalInterface& at, std::uint16_t port) {
  Descriptor socket = datagrams_on(at, port);
  const int on = 1;
  if (setsockopt(socket.get(), IPPROTO_IP, IP_TOS, &kNetworkControl, sizeof kNetworkControl) < 0 ||
      setsockopt(socket.get(), IPPROTO_IP, IP_RECVERR, &on, sizeof on) < 0) {
    raise_errno("setsockopt");
  }
  return socket;
}

std::size_t size_on_link(std::size_t datagram) {
  const std::size_t fragments = (kUdpSize + datagram + kFragmentBytes - 1) / kFragmentBytes;
  return fragments * (kUdpHeaders - kUdpSize) + kUdpSize + datagram;
}

// Whether the error is an ICMP port unreachable from a router or host.
bool is_port_unreachable(msghdr& message) {
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr; item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_IP || item->cmsg_type != IP_RECVERR) continue;
    sock_extended_err error;
    std::memcpy(&error, CMSG_DATA(item), sizeof error);
    return error.ee_origin == SO_EE_ORIGIN_ICMP && error.ee_type == ICMP_DEST_UNREACH &&
           error.ee_code == ICMP_PORT_UNREACH;
  }
  return false;
}

}  // namespace

ControlSocket::ControlSocket(EventLoop& loop, const LocalInterface& at, std::uint16_t port, Handler received,
                             Handler unreachable)
    : loop_(loop),
      at_(at),
      port_(port),
      interface_(interface_index(at.interface)),
      socket_(open(at, port)),
      received_(std::move(received)),
      unreachable_(std::move(unreachable)) {}

ControlSocket::~ControlSocket() {
  if (!members_.empty()) loop_.unwatch(socket_.get());
}

bool ControlSocket::follow_interface() {
  const unsigned index = interface_index(at_.interface);
  if (index == interface_) return false;
  Descriptor socket = open(at_, port_);
  if (!members_.empty()) {
    loop_.unwatch(socket_.get());
    loop_.watch(socket.get(), EPOLLIN, *this);
  }
  socket_ = std::move(socket);
  interface_ = index;
  return true;
}

void ControlSocket::introduce(const std::vector<SocketAddress>& members) {
  std::vector<sockaddr_in> addresses;
  for (const SocketAddress& member : members) {
    const sockaddr_in address = ipv4(member);
    ranks_[key(address)] = static_cast<int>(addresses.size());
    addresses.push_back(address);
  }
  members_ = std::move(addresses);
  loop_.watch(socket_.get(), EPOLLIN, *this);
}

std::size_t ControlSocket::send(int rank, Bytes datagram) {
  const sockaddr_in& to = members_.at(static_cast<std::size_t>(rank));
  // Instead of sending, sendto may report an ICMP error about an earlier datagram. Then it is called again.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const ssize_t size = sendto(socket_.get(), datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&to), sizeof to);
    if (size >= 0) return size_on_link(datagram.size());
    if (errno != ECONNREFUSED) return 0;
  }
  return 0;
}

void ControlSocket::drain(Time now) {
  std::array<std::byte, kMostBytes> datagram;
  for (int left = kMostAtOnce; left > 0; --left) {
    sockaddr_in from{};
    socklen_t size = sizeof from;
    const ssize_t received = recvfrom(socket_.get(), datagram.data(), datagram.size(),
                                      MSG_DONTWAIT | MSG_TRUNC, reinterpret_cast<sockaddr*>(&from), &size);
    if (received < 0 && (errno == EAGAIN || errno == EBADF)) return;
    if (received < 0) continue;
    const auto sender = ranks_.find(key(from));
    if (sender == ranks_.end() || static_cast<std::size_t>(received) > datagram.size()) {
      ++strangers_;
      continue;
    }
    received_(sender->second, Bytes(datagram.data(), static_cast<std::size_t>(received)), now);
  }
}

void ControlSocket::drain_errors(Time now) {
  for (int left = kMostErrors; left > 0; --left) {
    sockaddr_in sent_to{};
    std::array<std::byte, 512> control;
    std::array<std::byte, kMostQuoted> quoted;
    iovec part{.iov_base = quoted.data(), .iov_len = quoted.size()};
    msghdr message{};
    message.msg_name = &sent_to;
    message.msg_namelen = sizeof sent_to;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = recvmsg(socket_.get(), &message, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (size < 0) return;
    const auto member = ranks_.find(key(sent_to));
    if (member != ranks_.end() && is_port_unreachable(message))
      unreachable_(member->second, Bytes(quoted.data(), static_cast<std::size_t>(size)), now);
  }
}

}  // namespace railweave
