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
  region.address = reinterpret_cast<std::uintptr_t>(buffer.data());
  region.buffer = buffer;
  region.qpn = qpn;
  region.access = access;
  region.live = true;
  ++region.use;
  return index << 16 | region.use;
}

MemoryRegions::Region* MemoryRegions::live(std::uint32_t rkey) {
  const std::uint32_t index = rkey >> 16;
  if (index >= regions_.size()) return nullptr;
  Region& region = regions_[index];
  return region.live && region.use == (rkey & 0xffff) ? &region : nullptr;
}

void MemoryRegions::remove(std::uint32_t rkey) {
  Region* region = live(rkey);
  if (region == nullptr) return;
  region->live = false;
  region->buffer = {};
  region->copy = {};
  free_.push_back(rkey >> 16);
}

void MemoryRegions::release_buffer(std::uint32_t rkey) {
  Region* region = live(rkey);
  if (region == nullptr) return;
  region->copy.assign(region->buffer.begin(), region->buffer.end());
  region->buffer = region->copy;
}

MutableBytes MemoryRegions::find(std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                                 Access access, std::uint32_t qpn) {
  const Region* region = live(rkey);
  if (region == nullptr || (region->access & access) == 0) return {};
  if (region->qpn != kAnyQueuePair && region->qpn != qpn) return {};
  const std::uint64_t base = region->address, size = region->buffer.size();
  // Differences only: address + length may wrap.
  if (address < base || address - base > size || length > size - (address - base)) return {};
  return region->buffer.subspan(address - base, length);
}

}  // namespace railweave::roce
