// SPDX-License-Identifier: Apache-2.0
// Memory regions that a remote peer may write. They are the only way from a wire address to a pointer.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/bytes.hpp"

namespace railweave::roce {

/// Registered buffers by rkey. A key's upper half names an entry, its lower half counts the entry's uses. So
/// an old key fits a new region only after 65,536 registrations in the same entry.
class MemoryRegions {
 public:
  static constexpr std::uint32_t kAnyQueuePair = 0;

  /// Registers `buffer` for the local queue pair `qpn`, or for all. Returns the rkey. The region's remote
  /// address is the buffer's own address. Throws std::length_error if 65,536 regions are in use.
  std::uint32_t add(MutableBytes buffer, std::uint32_t qpn = kAnyQueuePair) {
    if (free_.empty()) {
      if (regions_.size() == 65'536) throw std::length_error("all 65,536 RDMA memory regions are in use");
      free_.push_back(static_cast<std::uint32_t>(regions_.size()));
      regions_.emplace_back();
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    Region& region = regions_[index];
    region.address = reinterpret_cast<std::uintptr_t>(buffer.data());
    region.buffer = buffer;
    region.qpn = qpn;
    region.live = true;
    ++region.use;
    return index << 16 | region.use;
  }
  /// Ends a registration; unknown keys are ignored.
  void remove(std::uint32_t rkey) {
    Region* region = live(rkey);
    if (region == nullptr) return;
    region->live = false;
    region->buffer = {};
    region->copy = {};
    free_.push_back(rkey >> 16);
  }
  /// Gives the buffer back but keeps the registration, with a copy in place of the buffer. A peer that goes
  /// on writing does no harm and gets no error.
  void release_buffer(std::uint32_t rkey) {
    Region* region = live(rkey);
    if (region == nullptr) return;
    region->copy.assign(region->buffer.begin(), region->buffer.end());
    region->buffer = region->copy;
  }

  /// Returns the bytes of [address, address + length). Returns an empty span with a null pointer if the key
  /// is unknown or another queue pair's, or if the range is not completely inside the region.
  MutableBytes find(std::uint32_t rkey, std::uint64_t address, std::uint64_t length, std::uint32_t qpn) {
    const Region* region = live(rkey);
    if (region == nullptr) return {};
    if (region->qpn != kAnyQueuePair && region->qpn != qpn) return {};
    const std::uint64_t base = region->address, size = region->buffer.size();
    // Differences only: address + length may wrap.
    if (address < base || address - base > size || length > size - (address - base)) return {};
    return region->buffer.subspan(address - base, length);
  }

 private:
  struct Region {
    std::uint64_t address = 0;  // as peers know it
    MutableBytes buffer{};
    std::vector<std::byte> copy{};  // `buffer` points here after `release_buffer`
    std::uint32_t qpn = 0;
    std::uint16_t use = 0;
    bool live = false;
  };
  Region* live(std::uint32_t rkey) {
    const std::uint32_t index = rkey >> 16;
    if (index >= regions_.size()) return nullptr;
    Region& region = regions_[index];
    return region.live && region.use == (rkey & 0xffff) ? &region : nullptr;
  }

  std::vector<Region> regions_;
  std::vector<std::uint32_t> free_;
};

}  // namespace railweave::roce
