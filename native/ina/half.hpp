// SPDX-License-Identifier: Apache-2.0
// float16 and bfloat16 on their way to and from lanes: they take the ways of float32, which holds both.
#pragma once

#include <cstddef>

#include "core/collective.hpp"

namespace railweave::ina {

constexpr bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

/// Exactly, as float32.
void widen(DType half, const std::byte* values, std::size_t count, std::byte* floats);

/// Rounded half to even; Inf where that exceeds the type. NaN stay NaN.
void narrow(DType half, const std::byte* floats, std::size_t count, std::byte* values);

}  // namespace railweave::ina
