// SPDX-License-Identifier: Apache-2.0
#include "ina/half.hpp"

#include "core/half.hpp"
#include "core/simd.hpp"
#include "ina/lanes.hpp"

namespace railweave::ina {
namespace {

RAILWEAVE_SIMD
void widen_float16(const std::byte* __restrict values, std::size_t count, std::byte* __restrict floats) {
  for (std::size_t i = 0; i < count; ++i) store(floats, i, from_float16(load<std::uint16_t>(values, i)));
}

RAILWEAVE_SIMD
void widen_bfloat16(const std::byte* __restrict values, std::size_t count, std::byte* __restrict floats) {
  for (std::size_t i = 0; i < count; ++i) store(floats, i, from_bfloat16(load<std::uint16_t>(values, i)));
}

RAILWEAVE_SIMD
void narrow_float16(const std::byte* __restrict floats, std::size_t count, std::byte* __restrict values) {
  for (std::size_t i = 0; i < count; ++i) store(values, i, to_float16(load<float>(floats, i)));
}

RAILWEAVE_SIMD
void narrow_bfloat16(const std::byte* __restrict floats, std::size_t count, std::byte* __restrict values) {
  for (std::size_t i = 0; i < count; ++i) store(values, i, to_bfloat16(load<float>(floats, i)));
}

}  // namespace

void widen(DType half, const std::byte* values, std::size_t count, std::byte* floats) {
  (half == DType::kFloat16 ? widen_float16 : widen_bfloat16)(values, count, floats);
}

void narrow(DType half, const std::byte* floats, std::size_t count, std::byte* values) {
  (half == DType::kFloat16 ? narrow_float16 : narrow_bfloat16)(floats, count, values);
}

}  // namespace railweave::ina
