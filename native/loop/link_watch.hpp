// SPDX-License-Identifier: Apache-2.0
// Tells when an interface of this network namespace appears, goes, changes state, or gets an address.
#pragma once

#include "core/descriptor.hpp"

namespace railweave {

/// A route netlink socket that listens to link events. What changed is not parsed: the owner looks at its own
/// interfaces again, which is right also when events were lost.
class LinkWatch {
 public:
  LinkWatch();

  int fd() const { return socket_.get(); }

  /// Throws away all events that wait.
  void drain();

 private:
  Descriptor socket_;
};

}  // namespace railweave
