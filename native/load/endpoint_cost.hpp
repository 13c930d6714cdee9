// SPDX-License-Identifier: Apache-2.0
// Measures the processor time of an in-network endpoint alone.
#pragma once

#include <cstdint>

#include "core/collective.hpp"
#include "core/time.hpp"

namespace railweave::load {

struct EndpointCost {
  std::uint64_t chunks;
  Duration transmit_ns;  // find the next chunk, read the input, build the packet
  Duration receive_ns;   // check the packet, write the output, update the state
};

/// Runs `rounds` all-reduces of `count` elements of four bytes through an endpoint in a group of one. The
/// endpoint's own packets return in batches as results. `sealed`: with seals, as in a job.
EndpointCost measure_endpoint(DType dtype, ReduceOp op, std::uint32_t lanes, std::uint32_t slots,
                              std::uint64_t count, int rounds, bool sealed);

}  // namespace railweave::load
