// SPDX-License-Identifier: Apache-2.0
// Helpers of all rigs.
#pragma once

#include <nanobind/nanobind.h>

#include <cstring>
#include <optional>
#include <stdexcept>

#include "core/secret.hpp"
#include "core/time.hpp"

namespace railweave {

/// Return a new submodule of railweave._rigs. If railweave._native has a submodule of this name, the new one
/// has its members too, so that a test imports both kinds from one place.
nanobind::module_ rig_submodule(nanobind::module_& rigs, const char* name, const char* doc);

/// kNever is None.
inline std::optional<Time> or_none(Time at) { return at == kNever ? std::nullopt : std::optional(at); }

inline Key key_from(const nanobind::bytes& bytes) {
  Key key;
  if (bytes.size() != key.size()) throw std::invalid_argument("a key has 16 bytes");
  std::memcpy(key.data(), bytes.data(), key.size());
  return key;
}

}  // namespace railweave
