// SPDX-License-Identifier: Apache-2.0
// Memory for results and kept inputs, which may outlive the callers' arrays. Buffers are never zeroed and are
// reused by later calls.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace railweave {

/// Not thread-safe. A buffer must not outlive the pool, and follows the pool's thread rule.
///
/// The pool holds at most 256 MiB more than the greatest capacity that was in use at once. If more than
/// 256 MiB is idle, the kernel may take pages of idle buffers when it needs memory.
class BufferPool {
 public:
  /// A buffer. Its destructor returns the memory to the pool.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(data_, other.data_);
      std::swap(bytes_, other.bytes_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Buffer() {
      if (data_ != nullptr) pool_->give_back(*this);
    }

    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    explicit operator bool() const { return data_ != nullptr; }

   private:
    friend class BufferPool;
    Buffer(BufferPool& pool, std::byte* data, std::size_t bytes, std::size_t index)
        : pool_(&pool), data_(data), bytes_(bytes), index_(index) {}

    BufferPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;  // the requested size
    std::size_t index_ = 0;  // index of its class
  };

  BufferPool() = default;
  ~BufferPool() {
    while (idle_bytes_ > 0) free_oldest();
  }
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// Returns at least `bytes` of page-aligned memory with undefined content. Throws std::bad_alloc.
  Buffer take(std::size_t bytes) {
    const std::size_t wanted = class_of(bytes);
    if (wanted >= kClasses) throw std::bad_alloc();
    const std::size_t last = std::min(wanted + kDoubled, kClasses - 1);
    for (std::size_t index = wanted; index <= last; ++index) {
      auto& buffers = classes_[index].idle;
      if (buffers.empty()) continue;
      std::byte* data = buffers.back();
      buffers.pop_back();
      idle_bytes_ -= capacity_of(index);
      return hand_out(data, bytes, index);
    }
    const std::size_t capacity = capacity_of(wanted);
    const std::size_t most = kMostIdle + std::max(most_out_, out_ + capacity);
    while (idle_bytes_ > 0 && out_ + capacity + idle_bytes_ > most) free_oldest();
    auto* data = static_cast<std::byte*>(std::aligned_alloc(kPage, capacity));
    if (data == nullptr) throw std::bad_alloc();
    return hand_out(data, bytes, wanted);
  }
  /// Total of the requested bytes of all buffers in use.
  std::size_t taken() const { return taken_; }

 private:
  // All buffers of a class have the same capacity. The capacities are one to four pages, then four steps
  // between powers of two. Fewer steps would waste memory; more steps would reuse fewer buffers.
  struct Class {
    std::vector<std::byte*> idle;
    std::uint64_t used = 0;  // value of uses_ at the class's last use
  };
  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kSteps = 4;
  static constexpr std::size_t kDoubled = kSteps;  // number of classes from a capacity to its double
  static constexpr std::size_t kClasses = 46 * kSteps;
  static constexpr std::size_t kMostIdle = std::size_t{256} << 20;

  static std::size_t class_of(std::size_t bytes) {
    const std::size_t pages = bytes == 0 ? 1 : (bytes - 1) / kPage + 1;
    if (pages <= kSteps) return pages - 1;
    const auto power = static_cast<std::size_t>(std::bit_width(pages - 1)) - 1;
    const std::size_t step = (std::size_t{1} << power) / kSteps;
    return kSteps * (power - 1) + (pages - (std::size_t{1} << power) - 1) / step;
  }
  static std::size_t capacity_of(std::size_t index) {
    if (index < kSteps) return (index + 1) * kPage;
    const std::size_t power = index / kSteps + 1;
    return ((std::size_t{1} << power) / kSteps * (kSteps + index % kSteps + 1)) * kPage;
  }

  Buffer hand_out(std::byte* data, std::size_t bytes, std::size_t index) {
    classes_[index].used = ++uses_;
    out_ += capacity_of(index);
    most_out_ = std::max(most_out_, out_);
    taken_ += bytes;
    return {*this, data, bytes, index};
  }
  void give_back(const Buffer& buffer) {
    const std::size_t capacity = capacity_of(buffer.index_);
    taken_ -= buffer.bytes_;
    out_ -= capacity;
    idle_bytes_ += capacity;
    classes_[buffer.index_].used = ++uses_;
    classes_[buffer.index_].idle.push_back(buffer.data_);
    if (idle_bytes_ > kMostIdle)
      madvise(buffer.data_, capacity, MADV_FREE);  // reuse faults only on pages that the kernel took
  }
  void free_oldest() {
    Class* oldest = nullptr;
    for (Class& one : classes_) {
      if (!one.idle.empty() && (oldest == nullptr || one.used < oldest->used)) oldest = &one;
    }
    std::free(oldest->idle.back());
    oldest->idle.pop_back();
    idle_bytes_ -= capacity_of(static_cast<std::size_t>(oldest - classes_.data()));
  }

  std::array<Class, kClasses> classes_;
  std::uint64_t uses_ = 0;
  std::size_t idle_bytes_ = 0;
  std::size_t out_ = 0;       // capacity of all buffers in use
  std::size_t most_out_ = 0;  // greatest out_ so far
  std::size_t taken_ = 0;
};

}  // namespace railweave
