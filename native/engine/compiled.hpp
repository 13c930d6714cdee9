// SPDX-License-Identifier: Apache-2.0
// The source that `translate` writes includes this file: the functions of instructions, and all functions
// that these call. So the compiler sees the whole way of a packet through a plan.
#pragma once

#define RAILWEAVE_SIMD  // compiled for the processor that it runs on

#include "core/checksum.cpp"
#include "core/crc32.cpp"
#include "engine/calculation.cpp"
#include "engine/cells.cpp"
#include "engine/hash.cpp"
#include "engine/headers.cpp"
#include "engine/ops.hpp"
#include "engine/table.cpp"
#include "engine/translate.hpp"
#include "engine/tuple_space.cpp"
#include "engine/vectors.cpp"

namespace railweave::engine {

/// A table as constants.
struct TableShape {
  std::uint32_t words, meter, timeouts;
  NativeField meter_result;
  BitRange meter_bits;
};

struct Calculation {
  std::uint32_t algorithm;
  std::span<const InputPlan> inputs;
};

/// How the code of an action ends.
enum class End { kReturn, kExit, kFail };

}  // namespace railweave::engine

#define RAILWEAVE_EXPORT extern "C" __attribute__((visibility("default")))
#define CALL(action) \
  if (const End end = action(run); end != End::kReturn) return end == End::kExit;
