// SPDX-License-Identifier: Apache-2.0
// Tells when an interface of this network namespace appears, goes, changes state, or gets an address.
#pragma once

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>

#include "core/descriptor.hpp"

namespace railweave {

/// A route netlink socket that listens to link events. What changed is not parsed: the owner looks at its own
/// interfaces again, which is right also when events were lost.
class LinkWatch {
 public:
  LinkWatch() : socket_(socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE)) {
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR;
    if (!socket_ || bind(fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      raise_errno("listening to link events");
    }
  }

  int fd() const { return socket_.get(); }

  /// Throws away all events that wait.
  void drain() {
    std::array<std::byte, 16384> scratch;
    for (;;) {
      const ssize_t size = recv(fd(), scratch.data(), scratch.size(), MSG_DONTWAIT);
      // ENOBUFS says that events were lost and clears the error: as good as an event.
      if (size < 0 && errno != ENOBUFS && errno != EINTR) return;
    }
  }

 private:
  Descriptor socket_;
};

}  // namespace railweave
