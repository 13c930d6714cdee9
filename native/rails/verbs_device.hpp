// SPDX-License-Identifier: Apache-2.0
// A kernel RDMA device (a NIC or rdma_rxe), used through libibverbs, with one completion queue for all queue
// pairs.
#pragma once

#include <memory>
#include <string>

#include "core/time.hpp"
#include "rails/rdma_device.hpp"

namespace railweave {

struct VerbsOptions {
  std::string address;  // IPv4 of the interface, dotted; the device has it as a RoCEv2 GID
  std::size_t path_mtu = 1024;
  Duration silence = 0;  // of a peer until it counts as gone; 0: the longest that the device can wait
  std::uint8_t traffic_class = 0;
  std::size_t connections = 1;  // at most
};

/// Throws std::runtime_error that names the missing part: headers at build time, the library, or a device
/// with the address. Throws std::system_error if the device refuses an operation.
std::unique_ptr<RdmaDevice> open_verbs_device(const VerbsOptions& options);

}  // namespace railweave
