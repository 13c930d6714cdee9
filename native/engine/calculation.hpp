// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/packet.hpp"
#include "engine/plan.hpp"

namespace railweave::engine {

/// The bits of `inputs` behind each other, the last byte filled with zeros, the payload at the end.
void gather(const Plan& plan, std::span<const InputPlan> inputs, const Packet& packet,
            std::vector<std::byte>& buffer);

/// The hash or checksum over the inputs of `calculation`, gathered in `buffer` (which is kept for the next).
std::uint64_t calculate(const Plan& plan, const CalculationPlan& calculation, const Packet& packet,
                        std::vector<std::byte>& buffer);

}  // namespace railweave::engine
