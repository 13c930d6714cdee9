// SPDX-License-Identifier: Apache-2.0
// What a switch tells its control plane about packets: digests, and packets that left through the CPU port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/bytes.hpp"

namespace railweave::engine {

/// Bounded in number and bytes: what does not fit is dropped and counted, as a slow control plane must
/// not eat the switch's memory.
class Notices {
 public:
  static constexpr std::size_t kMaxItems = 4096;
  static constexpr std::size_t kMaxBytes = 4u << 20;

  struct Item {
    std::uint32_t list = 0;  // of a digest
    std::vector<std::byte> bytes;
  };

  /// False if there was no room.
  bool add(std::uint32_t list, Bytes bytes) {
    if (items_.size() >= kMaxItems || bytes_ + bytes.size() > kMaxBytes) {
      ++dropped_;
      return false;
    }
    items_.push_back({list, {bytes.begin(), bytes.end()}});
    bytes_ += bytes.size();
    return true;
  }

  std::deque<Item> take() {
    bytes_ = 0;
    return std::exchange(items_, {});
  }

  bool empty() const { return items_.empty(); }
  std::uint64_t dropped() const { return dropped_; }

 private:
  std::deque<Item> items_;
  std::size_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace railweave::engine
