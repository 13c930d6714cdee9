// SPDX-License-Identifier: Apache-2.0
// Registered memory that messages pass through. The rail owns it, so a registration never outlives its
// memory, and a device never touches a buffer that its owner has taken back. Registration costs tens of
// microseconds, so a block is registered once and used again.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "core/bytes.hpp"
#include "rails/verbs_library.hpp"

namespace railweave {

class VerbsMemory {
 public:
  struct Block {
    MutableBytes bytes{};
    ibv_mr* region = nullptr;
  };

  /// `domain` belongs to one queue pair, so that only its peer can write to this memory.
  explicit VerbsMemory(ibv_pd* domain) : domain_(domain) {}
  VerbsMemory(const VerbsMemory&) = delete;
  VerbsMemory& operator=(const VerbsMemory&) = delete;
  ~VerbsMemory() {
    for (const Block& block : all_) {
      verbs().dereg_mr(block.region);
      munmap(block.bytes.data(), block.bytes.size());
    }
  }

  /// Returns a block of `bytes` or more, not cleared, for use until `give` or `take_back`. Throws
  /// std::system_error.
  Block get(std::size_t bytes) {
    const auto shape = static_cast<std::size_t>(std::bit_width(std::max(bytes, kLeast) - 1));
    std::vector<Block>& idle = idle_.at(shape);
    if (idle.empty()) idle.push_back(make(std::size_t{1} << shape));
    const Block block = idle.back();
    idle.pop_back();
    return block;
  }
  void give(const Block& block) { idle_.at(shape_of(block)).push_back(block); }
  /// Takes all blocks back. Nobody may use them any more.
  void take_back() {
    for (auto& idle : idle_) idle.clear();
    for (const Block& block : all_) give(block);
  }

 private:
  static constexpr std::size_t kLeast = 4096;

  static std::size_t shape_of(const Block& block) {
    return static_cast<std::size_t>(std::bit_width(block.bytes.size() - 1));
  }

  Block make(std::size_t size) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "memory for RDMA");
    madvise(memory, size, MADV_DONTFORK);  // else a write after a fork may copy a page away from the device
    ibv_mr* region = verbs().reg_mr(domain_, memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (region == nullptr) {
      const int error = errno;
      munmap(memory, size);
      throw std::system_error(error, std::generic_category(),
                              "cannot register " + std::to_string(size) +
                                  " bytes for RDMA (ulimit -l bounds what a process may lock)");
    }
    all_.push_back({.bytes = {static_cast<std::byte*>(memory), size}, .region = region});
    return all_.back();
  }

  ibv_pd* const domain_;
  std::vector<Block> all_;
  std::array<std::vector<Block>, 48> idle_;  // by the bit width of their size
};

}  // namespace railweave
