// SPDX-License-Identifier: Apache-2.0
// Vector instructions that follow each other as one loop over words: no vector goes through memory.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "engine/plan.hpp"

namespace railweave::engine {

/// The end of the vector instructions from `pc` on that may be one loop over words; `pc` if there is no such
/// loop. They have the same length, load before they store, and use no vectors of other instructions. A
/// target of a jump can only be the first instruction of a loop.
std::uint32_t end_of_vector_loop(const Plan& plan, std::uint32_t pc, const std::set<std::uint32_t>& targets);

/// The loop as C++ with a Run named `run`; `go` gives the statement that jumps from an instruction to
/// another.
std::string vector_loop(const Plan& plan, std::uint32_t begin, std::uint32_t end,
                        const std::function<std::string(std::uint32_t from, std::uint32_t to)>& go);

}  // namespace railweave::engine
