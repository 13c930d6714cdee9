// SPDX-License-Identifier: Apache-2.0
// Tells when the interface of a rail goes down, loses its carrier or disappears, and when it is back.
#pragma once

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <utility>

#include "core/descriptor.hpp"
#include "loop/event_loop.hpp"
#include "loop/link_watch.hpp"

namespace railweave {

/// The reason why this interface cannot send now. Returns "" if it can send, or if `interface` is "".
inline std::string carrier_obstacle(const std::string& interface) {
  if (interface.empty()) return "";
  const Descriptor any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!any) return "";  // no descriptor left: the interface's state is unknown
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  if (ioctl(any.get(), SIOCGIFFLAGS, &request) < 0) return "interface " + interface + " is gone";
  if ((request.ifr_flags & IFF_UP) == 0) return "interface " + interface + " is down";
  if ((request.ifr_flags & IFF_RUNNING) == 0) return "interface " + interface + " has no carrier";
  return "";
}

/// Calls `changed` when the state of any interface has changed.
class CarrierWatch final : public ReadyHandler {
 public:
  /// Throws std::system_error without route netlink.
  CarrierWatch(EventLoop& loop, std::function<void(Time)> changed)
      : loop_(loop), changed_(std::move(changed)) {
    loop_.watch(links_.fd(), EPOLLIN, *this);
  }
  ~CarrierWatch() override { loop_.unwatch(links_.fd()); }

  void on_ready(std::uint32_t, Time now) override {
    links_.drain();
    changed_(now);
  }

 private:
  EventLoop& loop_;
  const std::function<void(Time)> changed_;
  LinkWatch links_;
};

}  // namespace railweave
