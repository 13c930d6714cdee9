// SPDX-License-Identifier: Apache-2.0
// Reports when an interface of this network namespace appears, disappears, changes state, or gets an address.
#pragma once

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>

#include "core/descriptor.hpp"

namespace railweave {

/// A route netlink socket for link events. Events are not parsed. The owner checks its own interfaces again,
/// so lost events do no harm.
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

  /// Discards all waiting events.
  void drain() {
    std::array<std::byte, 16384> scratch;
    for (;;) {
      const ssize_t size = recv(fd(), scratch.data(), scratch.size(), MSG_DONTWAIT);
      // ENOBUFS means lost events, and the call clears the error. It counts as an event.
      if (size < 0 && errno != ENOBUFS && errno != EINTR) return;
    }
  }

 private:
  Descriptor socket_;
};

}  // namespace railweave
