// SPDX-License-Identifier: Apache-2.0
#include "rails/carrier_watch.hpp"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <system_error>

#include "rails/socket.hpp"

namespace railweave {

std::string carrier_obstacle(const std::string& interface) {
  if (interface.empty()) return "";
  const Descriptor any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!any) return "";  // no descriptor left: says nothing of the interface
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  if (ioctl(any.get(), SIOCGIFFLAGS, &request) < 0) return "interface " + interface + " is gone";
  if ((request.ifr_flags & IFF_UP) == 0) return "interface " + interface + " is down";
  if ((request.ifr_flags & IFF_RUNNING) == 0) return "interface " + interface + " has no carrier";
  return "";
}

CarrierWatch::CarrierWatch(EventLoop& loop, Owner& owner) : loop_(loop), owner_(owner) {
  loop_.watch(links_.fd(), EPOLLIN, *this);
}

CarrierWatch::~CarrierWatch() { loop_.unwatch(links_.fd()); }

void CarrierWatch::on_ready(std::uint32_t, Time now) {
  links_.drain();
  owner_.links_changed(now);
}

}  // namespace railweave
