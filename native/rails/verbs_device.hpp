// SPDX-License-Identifier: Apache-2.0
// An RDMA device of the kernel's: a NIC, or rdma_rxe, by libibverbs. One device, with one queue of
// completions for all queue pairs.
#pragma once

#include <memory>
#include <string>

#include "core/time.hpp"
#include "rails/rdma_device.hpp"

namespace railweave {

struct VerbsOptions {
  std::string address;  // IPv4 of the interface, dotted: the device is that which has it as a RoCEv2 GID
  std::size_t path_mtu = 1024;
  Duration silence = 0;  // of a peer, before it counts as gone; 0: as long as the device can wait
  std::uint8_t traffic_class = 0;
  std::size_t connections = 1;  // at most
};

/// Throws std::runtime_error that says what is missing: headers when this was built, the library, a device
/// with that address; std::system_error for what the device refuses.
std::unique_ptr<RdmaDevice> open_verbs_device(const VerbsOptions& options);

}  // namespace railweave
