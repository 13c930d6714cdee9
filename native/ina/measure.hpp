// SPDX-License-Identifier: Apache-2.0
// What an endpoint costs, without network and switch.
#pragma once

#include <cstdint>
#include <functional>

#include "core/collective.hpp"
#include "core/time.hpp"

namespace railweave::ina {

/// Chunks that went through an endpoint, and the time that either direction took by the given clock.
struct EndpointCost {
  std::uint64_t chunks;
  Duration transmit;  // find the next chunk, read the input, build the packet
  Duration receive;   // judge the packet, write the output, keep the books
};

/// Runs `rounds` calls of `count` elements through an endpoint in a group of one; its own packets, turned
/// round in batches, are the results; `clock` reads the CPU time. Throws std::invalid_argument for options
/// that the endpoint refuses.
EndpointCost measure_endpoint(DType dtype, ReduceOp op, std::uint32_t lanes, std::uint32_t slots,
                              std::uint64_t count, int rounds, const std::function<Time()>& clock);

}  // namespace railweave::ina
