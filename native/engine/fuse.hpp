// SPDX-License-Identifier: Apache-2.0
// Makes a plan's code quicker to interpret without moving an instruction.
#pragma once

#include <vector>

#include "engine/isa.hpp"

namespace railweave::engine {

/// A copy of checked code in which an instruction that is often followed by the one behind it does the work
/// of both, and jumps go where they end up. Every instruction keeps its place and its operands: a jump to the
/// second of a pair finds it as it was.
std::vector<Instruction> fuse(std::vector<Instruction> code);

}  // namespace railweave::engine
