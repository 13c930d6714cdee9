// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

#include "core/bytes.hpp"

namespace railweave {

inline void require(bool holds) {
  if (!holds) std::abort();
}

/// Reads an input byte by byte. Returns zeros after the end.
class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
  bool ended() const { return rest_.empty(); }
  std::uint8_t next() {
    if (ended()) return 0;
    const std::uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace railweave
