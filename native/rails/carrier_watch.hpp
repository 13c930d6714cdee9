// SPDX-License-Identifier: Apache-2.0
// Tells when the interface of a rail goes down, loses its carrier or disappears, and when it is back.
#pragma once

#include <string>

#include "loop/event_loop.hpp"
#include "loop/link_watch.hpp"

namespace railweave {

/// Why nothing can be sent by this interface now; "" if there is no reason, or if `interface` is "".
std::string carrier_obstacle(const std::string& interface);

class CarrierWatch final : public ReadyHandler {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// Some interface's state has changed: look at yours again.
    virtual void links_changed(Time now) = 0;
  };

  /// Throws std::system_error where there is no route netlink.
  CarrierWatch(EventLoop& loop, Owner& owner);
  ~CarrierWatch() override;

  void on_ready(std::uint32_t events, Time now) override;

 private:
  EventLoop& loop_;
  Owner& owner_;
  LinkWatch links_;
};

}  // namespace railweave
