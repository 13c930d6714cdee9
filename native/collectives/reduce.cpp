// SPDX-License-Identifier: Apache-2.0
#include "collectives/reduce.hpp"

#include <cstdint>

#include "core/simd.hpp"

namespace railweave {
namespace {

// `into` may be one of the operands, which gcc's run-time overlap check would send to the scalar loop.
// Element i depends on element i alone, so `ivdep` holds. Written out six times because `target_clones` does
// not go with templates.
#define RAILWEAVE_ELEMENTWISE(name, T, expression)                                    \
  RAILWEAVE_SIMD void name(T* into, const T* low, const T* high, std::size_t count) { \
    _Pragma("GCC ivdep") for (std::size_t i = 0; i < count; ++i) {                    \
      const T a = low[i];                                                             \
      const T b = high[i];                                                            \
      into[i] = expression;                                                           \
    }                                                                                 \
  }

RAILWEAVE_ELEMENTWISE(sum_float, float, a + b)
RAILWEAVE_ELEMENTWISE(max_float, float, (a >= b) | (a != a) ? a : b)
RAILWEAVE_ELEMENTWISE(min_float, float, (a <= b) | (a != a) ? a : b)
RAILWEAVE_ELEMENTWISE(sum_int32, std::uint32_t, a + b)  // unsigned: wraps instead of overflowing
RAILWEAVE_ELEMENTWISE(max_int32, std::int32_t, a > b ? a : b)
RAILWEAVE_ELEMENTWISE(min_int32, std::int32_t, a < b ? a : b)

#undef RAILWEAVE_ELEMENTWISE

RAILWEAVE_SIMD void divide_float(float* data, std::size_t count, float divisor) {
  for (std::size_t i = 0; i < count; ++i) data[i] /= divisor;
}

void divide_int32(std::int32_t* data, std::size_t count, std::int32_t divisor) {
  for (std::size_t i = 0; i < count; ++i) data[i] /= divisor;
}

template <typename T>
using Kernel = void (*)(T* into, const T* low, const T* high, std::size_t count);

template <typename T>
void run(Kernel<T> kernel, std::byte* into, const std::byte* low, const std::byte* high, std::size_t count) {
  kernel(reinterpret_cast<T*>(into), reinterpret_cast<const T*>(low), reinterpret_cast<const T*>(high),
         count);
}

void reduce_float(ReduceOp op, std::byte* into, const std::byte* low, const std::byte* high,
                  std::size_t count) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return run<float>(sum_float, into, low, high, count);
    case ReduceOp::kMax:
      return run<float>(max_float, into, low, high, count);
    case ReduceOp::kMin:
      return run<float>(min_float, into, low, high, count);
  }
}

void reduce_int32(ReduceOp op, std::byte* into, const std::byte* low, const std::byte* high,
                  std::size_t count) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return run<std::uint32_t>(sum_int32, into, low, high, count);
    case ReduceOp::kMax:
      return run<std::int32_t>(max_int32, into, low, high, count);
    case ReduceOp::kMin:
      return run<std::int32_t>(min_int32, into, low, high, count);
  }
}

}  // namespace

void reduce(DType dtype, ReduceOp op, std::byte* into, const std::byte* low, const std::byte* high,
            std::size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return reduce_float(op, into, low, high, count);
    case DType::kInt32:
      return reduce_int32(op, into, low, high, count);
  }
}

void finish(DType dtype, ReduceOp op, std::byte* data, std::size_t count, int world_size) {
  if (op != ReduceOp::kAvg) return;
  switch (dtype) {
    case DType::kFloat32:
      return divide_float(reinterpret_cast<float*>(data), count, static_cast<float>(world_size));
    case DType::kInt32:
      return divide_int32(reinterpret_cast<std::int32_t*>(data), count, world_size);
  }
}

}  // namespace railweave
