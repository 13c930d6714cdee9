// SPDX-License-Identifier: Apache-2.0
// Memory of calls that outlives their callers': taken and given back with every call, so never zeroed, and
// kept for the next one.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace railweave {

/// Not for several threads at once. Buffers may outlive neither the pool nor its thread rule.
class BufferPool {
 public:
  /// A piece of memory that goes back to its pool.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)),
          data_(std::exchange(other.data_, nullptr)),
          capacity_(std::exchange(other.capacity_, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(data_, other.data_);
      std::swap(capacity_, other.capacity_);
      return *this;
    }
    ~Buffer() {
      if (data_ != nullptr) pool_->give_back(data_, capacity_);
    }

    std::byte* data() const { return data_; }
    std::size_t capacity() const { return capacity_; }
    explicit operator bool() const { return data_ != nullptr; }

   private:
    friend class BufferPool;
    Buffer(BufferPool& pool, std::byte* data, std::size_t capacity)
        : pool_(&pool), data_(data), capacity_(capacity) {}

    BufferPool* pool_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t capacity_ = 0;
  };

  BufferPool() = default;
  ~BufferPool() {
    for (const auto& buffers : idle_) {
      for (std::byte* data : buffers) std::free(data);
    }
  }
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// At least `bytes`, page-aligned, of whatever content. std::bad_alloc if there is no memory.
  Buffer take(std::size_t bytes) {
    const std::size_t index = class_of(bytes);
    if (index >= kClasses) throw std::bad_alloc();
    const std::size_t capacity = kSmallest << index;
    auto& buffers = idle_[index];
    std::byte* data = nullptr;
    if (buffers.empty()) {
      data = static_cast<std::byte*>(std::aligned_alloc(kSmallest, capacity));
      if (data == nullptr) throw std::bad_alloc();
    } else {
      data = buffers.back();
      buffers.pop_back();
      idle_bytes_ -= capacity;
    }
    taken_ += capacity;
    return {*this, data, capacity};
  }
  /// Capacity of the buffers that are out.
  std::size_t taken() const { return taken_; }

 private:
  static constexpr std::size_t kSmallest = 4096;
  static constexpr std::size_t kClasses = 48;                       // powers of two from the smallest on
  static constexpr std::size_t kMostIdle = std::size_t{256} << 20;  // what lies idle beyond is freed

  static std::size_t class_of(std::size_t bytes) {
    return bytes <= kSmallest ? 0 : std::bit_width(bytes - 1) - std::bit_width(kSmallest - 1);
  }
  void give_back(std::byte* data, std::size_t capacity) {
    taken_ -= capacity;
    if (idle_bytes_ + capacity > kMostIdle) return std::free(data);
    idle_[class_of(capacity)].push_back(data);
    idle_bytes_ += capacity;
  }

  std::array<std::vector<std::byte*>, kClasses> idle_;
  std::size_t idle_bytes_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace railweave
