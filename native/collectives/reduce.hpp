// SPDX-License-Identifier: Apache-2.0
// The arithmetic of collectives, as far as hosts do it.
#pragma once

#include <cstddef>

#include "core/collective.hpp"

namespace railweave {

/// into[i] = op(low[i], high[i]) for `count` elements; kAvg adds, `finish` divides. `into` may be `low` or
/// `high`, else they do not overlap. Integers wrap. float16 and bfloat16 are computed as float and rounded,
/// half to even, once per call: a sum over n ranks is rounded n - 1 times, as numpy's own additions would.
/// If one operand is NaN, max and min are NaN, as with numpy.maximum. The order of the operands matters for
/// the bits of a NaN and for -0: give the lower rank's operand first.
void reduce(DType dtype, ReduceOp op, std::byte* into, const std::byte* low, const std::byte* high,
            std::size_t count);

/// The last step, once per element. For kAvg it divides by `world_size`, integers towards zero. For other
/// operations it does nothing.
void finish(DType dtype, ReduceOp op, std::byte* data, std::size_t count, int world_size);

}  // namespace railweave
