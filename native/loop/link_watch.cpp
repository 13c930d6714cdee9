// SPDX-License-Identifier: Apache-2.0
#include "loop/link_watch.hpp"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <system_error>

namespace railweave {

LinkWatch::LinkWatch() : socket_(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE)) {
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR;
  if (!socket_ || bind(fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    throw std::system_error(errno, std::generic_category(), "listening to link events");
  }
}

void LinkWatch::drain() {
  std::array<std::byte, 16384> scratch;
  for (;;) {
    const ssize_t size = recv(fd(), scratch.data(), scratch.size(), MSG_DONTWAIT);
    // ENOBUFS says that events were lost and clears the error: as good as an event.
    if (size < 0 && errno != ENOBUFS && errno != EINTR) return;
  }
}

}  // namespace railweave
