// SPDX-License-Identifier: Apache-2.0
// Pieces of the source that `translate` writes.
#pragma once

#include <sstream>
#include <string>

#include "engine/isa.hpp"

namespace railweave::engine {

/// Concatenates the parts.
template <typename... T>
std::string text(const T&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// An instruction as an initialiser.
inline std::string operands_of(const Instruction& in) {
  return text("{Op::", kOps[static_cast<std::size_t>(in.op)].name, ", ", in.d, ", ", in.a, "u, ", in.b, "u, ",
              in.c, "u}");
}

}  // namespace railweave::engine
