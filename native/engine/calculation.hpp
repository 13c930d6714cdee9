// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/pass.hpp"
#include "engine/plan.hpp"

namespace railweave::engine {

/// The hash or checksum over the inputs of `calculation`, gathered in `buffer` (which is kept for the next).
std::uint64_t calculate(const Plan& plan, const CalculationPlan& calculation, const Pass& pass,
                        std::vector<std::byte>& buffer);

}  // namespace railweave::engine
