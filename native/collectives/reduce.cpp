// SPDX-License-Identifier: Apache-2.0
#include "collectives/reduce.hpp"

#include <array>
#include <cstdint>

#include "core/half.hpp"
#include "core/simd.hpp"

namespace railweave {
namespace {

using Kernel = void (*)(std::byte* into, const std::byte* low, const std::byte* high, std::size_t count);
using Divide = void (*)(std::byte* data, std::size_t count, int divisor);

// `into` may be one of the operands. Then gcc's run-time overlap check would choose the scalar loop. Element
// i depends only on element i, so `ivdep` is correct. These are macros, because `target_clones` does not work
// with templates.
#define RAILWEAVE_ELEMENTWISE(name, T, expression)                                       \
  RAILWEAVE_SIMD void name(std::byte* into, const std::byte* low, const std::byte* high, \
                           std::size_t count) {                                          \
    T* const out = reinterpret_cast<T*>(into);                                           \
    const T* const lower = reinterpret_cast<const T*>(low);                              \
    const T* const higher = reinterpret_cast<const T*>(high);                            \
    _Pragma("GCC ivdep") for (std::size_t i = 0; i < count; ++i) {                       \
      const T a = lower[i];                                                              \
      const T b = higher[i];                                                             \
      out[i] = static_cast<T>(expression);                                               \
    }                                                                                    \
  }

// Integers wrap: they are added and multiplied as unsigned ones.
#define RAILWEAVE_INTEGERS(name, T, Unsigned)                                                              \
  RAILWEAVE_ELEMENTWISE(sum_##name, Unsigned, a + b)                                                       \
  RAILWEAVE_ELEMENTWISE(prod_##name, Unsigned, a* b)                                                       \
  RAILWEAVE_ELEMENTWISE(max_##name, T, a > b ? a : b)                                                      \
  RAILWEAVE_ELEMENTWISE(min_##name, T, a < b ? a : b)                                                      \
  void divide_##name(std::byte* data, std::size_t count, int divisor) {                                    \
    T* const values = reinterpret_cast<T*>(data);                                                          \
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(std::int64_t{values[i]} / divisor); \
  }

// NaN is propagated: of two NaNs, the first one.
#define RAILWEAVE_FLOATS(name, T)                                                      \
  RAILWEAVE_ELEMENTWISE(sum_##name, T, a + b)                                          \
  RAILWEAVE_ELEMENTWISE(prod_##name, T, a* b)                                          \
  RAILWEAVE_ELEMENTWISE(max_##name, T, (a >= b) | (a != a) ? a : b)                    \
  RAILWEAVE_ELEMENTWISE(min_##name, T, (a <= b) | (a != a) ? a : b)                    \
  RAILWEAVE_SIMD void divide_##name(std::byte* data, std::size_t count, int divisor) { \
    T* const values = reinterpret_cast<T*>(data);                                      \
    for (std::size_t i = 0; i < count; ++i) values[i] /= static_cast<T>(divisor);      \
  }

// Computed in float and rounded once, as numpy adds two such numbers.
#define RAILWEAVE_HALVES(name)                                                                        \
  RAILWEAVE_ELEMENTWISE(sum_##name, std::uint16_t, to_##name(from_##name(a) + from_##name(b)))        \
  RAILWEAVE_ELEMENTWISE(prod_##name, std::uint16_t, to_##name(from_##name(a) * from_##name(b)))       \
  RAILWEAVE_ELEMENTWISE(max_##name, std::uint16_t, max_float(from_##name(a), from_##name(b)) ? a : b) \
  RAILWEAVE_ELEMENTWISE(min_##name, std::uint16_t, min_float(from_##name(a), from_##name(b)) ? a : b) \
  RAILWEAVE_SIMD void divide_##name(std::byte* data, std::size_t count, int divisor) {                \
    auto* const values = reinterpret_cast<std::uint16_t*>(data);                                      \
    const auto by = static_cast<float>(divisor);                                                      \
    for (std::size_t i = 0; i < count; ++i) values[i] = to_##name(from_##name(values[i]) / by);       \
  }

inline bool max_float(float a, float b) { return (a >= b) | (a != a); }
inline bool min_float(float a, float b) { return (a <= b) | (a != a); }

RAILWEAVE_FLOATS(float32, float)
RAILWEAVE_INTEGERS(int32, std::int32_t, std::uint32_t)
RAILWEAVE_HALVES(float16)
RAILWEAVE_HALVES(bfloat16)
RAILWEAVE_FLOATS(float64, double)
RAILWEAVE_INTEGERS(int8, std::int8_t, std::uint8_t)
RAILWEAVE_INTEGERS(uint8, std::uint8_t, std::uint8_t)
RAILWEAVE_INTEGERS(int64, std::int64_t, std::uint64_t)

struct Kernels {
  std::array<Kernel, 5> by_op;
  Divide divide;
};

#define RAILWEAVE_KERNELS_OF(name) \
  Kernels { {sum_##name, max_##name, min_##name, sum_##name, prod_##name}, divide_##name }

// In the order of DType, then of ReduceOp. An average is a sum that `finish` divides.
constexpr std::array<Kernels, 8> kKernels{RAILWEAVE_KERNELS_OF(float32), RAILWEAVE_KERNELS_OF(int32),
                                          RAILWEAVE_KERNELS_OF(float16), RAILWEAVE_KERNELS_OF(bfloat16),
                                          RAILWEAVE_KERNELS_OF(float64), RAILWEAVE_KERNELS_OF(int8),
                                          RAILWEAVE_KERNELS_OF(uint8),   RAILWEAVE_KERNELS_OF(int64)};

#undef RAILWEAVE_ELEMENTWISE
#undef RAILWEAVE_INTEGERS
#undef RAILWEAVE_FLOATS
#undef RAILWEAVE_HALVES
#undef RAILWEAVE_KERNELS_OF

const Kernels& kernels_of(DType dtype) { return kKernels[static_cast<std::size_t>(dtype)]; }

}  // namespace

void reduce(DType dtype, ReduceOp op, std::byte* into, const std::byte* low, const std::byte* high,
            std::size_t count) {
  kernels_of(dtype).by_op[static_cast<std::size_t>(op)](into, low, high, count);
}

void finish(DType dtype, ReduceOp op, std::byte* data, std::size_t count, int world_size) {
  if (op == ReduceOp::kAvg) kernels_of(dtype).divide(data, count, world_size);
}

}  // namespace railweave
