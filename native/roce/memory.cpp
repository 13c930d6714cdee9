// SPDX-License-Identifier: Apache-2.0
#include "roce/memory.hpp"

#include <stdexcept>

namespace railweave::roce {

std::uint32_t MemoryRegions::add(MutableBytes buffer, std::uint8_t access, std::uint32_t qpn) {
  if (free_.empty()) {
    if (regions_.size() == 65'536) throw std::length_error("all 65,536 RDMA memory regions are in use");
    free_.push_back(static_cast<std::uint32_t>(regions_.size()));
    regions_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Region& region = regions_[index];
  region.buffer = buffer;
  region.qpn = qpn;
  region.access = access;
  region.live = true;
  ++region.use;
  return index << 16 | region.use;
}

void MemoryRegions::remove(std::uint32_t rkey) {
  const std::uint32_t index = rkey >> 16;
  if (index >= regions_.size()) return;
  Region& region = regions_[index];
  if (!region.live || region.use != (rkey & 0xffff)) return;
  region.live = false;
  region.buffer = {};
  free_.push_back(index);
}

MutableBytes MemoryRegions::find(std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                                 Access access, std::uint32_t qpn) const {
  const std::uint32_t index = rkey >> 16;
  if (index >= regions_.size()) return {};
  const Region& region = regions_[index];
  if (!region.live || region.use != (rkey & 0xffff) || (region.access & access) == 0) return {};
  if (region.qpn != kAnyQueuePair && region.qpn != qpn) return {};
  const auto base = reinterpret_cast<std::uintptr_t>(region.buffer.data());
  const std::uint64_t size = region.buffer.size();
  // Differences only: address + length may wrap.
  if (address < base || address - base > size || length > size - (address - base)) return {};
  return region.buffer.subspan(address - base, length);
}

}  // namespace railweave::roce
