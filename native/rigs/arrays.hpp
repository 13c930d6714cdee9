// SPDX-License-Identifier: Apache-2.0
// Arrays and ops as Python names them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <map>
#include <string_view>

#include "core/collective.hpp"

namespace railweave {

using ConstArray =
    nanobind::ndarray<nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu, nanobind::ro>;
using Array = nanobind::ndarray<nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

inline const std::byte* bytes_of(const ConstArray& array) {
  return static_cast<const std::byte*>(array.data());
}
inline std::byte* bytes_of(const Array& array) { return static_cast<std::byte*>(array.data()); }

inline DType dtype_of(const ConstArray& array) {
  if (array.dtype() == nanobind::dtype<float>()) return DType::kFloat32;
  if (array.dtype() == nanobind::dtype<std::int32_t>()) return DType::kInt32;
  throw nanobind::type_error("float32 or int32 arrays are reduced");
}

/// Python's arrays have no bfloat16 type, so uint16 arrays hold its bits.
inline DType carried_dtype(const ConstArray& array) {
  if (array.dtype() == nanobind::dtype<std::uint16_t>()) return DType::kBFloat16;
  if (array.dtype() == nanobind::dtype<std::uint8_t>()) return DType::kUInt8;
  if (array.dtype() == nanobind::dtype<double>()) return DType::kFloat64;
  const nanobind::dlpack::dtype type = array.dtype();
  if (type.code == static_cast<std::uint8_t>(nanobind::dlpack::dtype_code::Float) && type.bits == 16)
    return DType::kFloat16;
  return dtype_of(array);
}

inline void check_alike(const ConstArray& input, const Array& output) {
  if (input.dtype() != output.dtype() || input.size() != output.size())
    throw nanobind::value_error("input and output differ in dtype or length");
}

inline ReduceOp op_of(std::string_view name) {
  static const std::map<std::string_view, ReduceOp> kOps{
      {"sum", ReduceOp::kSum}, {"max", ReduceOp::kMax}, {"min", ReduceOp::kMin}, {"avg", ReduceOp::kAvg}};
  const auto found = kOps.find(name);
  if (found == kOps.end()) throw nanobind::value_error("op must be sum, max, min or avg");
  return found->second;
}

}  // namespace railweave
