// SPDX-License-Identifier: Apache-2.0
// Memory of calls that outlives their callers': taken and given back with every call, so never zeroed, and
// kept for the next one.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace railweave {

/// Not for several threads at once. Buffers may outlive neither the pool nor its thread rule.
class BufferPool {
 public:
  /// A piece of memory that goes back to its pool.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer();

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
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// At least `bytes`, page-aligned, of whatever content. std::bad_alloc if there is no memory.
  Buffer take(std::size_t bytes);
  /// Capacity of the buffers that are out.
  std::size_t taken() const { return taken_; }

 private:
  static constexpr std::size_t kSmallest = 4096;
  static constexpr std::size_t kClasses = 48;                       // powers of two from the smallest on
  static constexpr std::size_t kMostIdle = std::size_t{256} << 20;  // what lies idle beyond is freed

  static std::size_t class_of(std::size_t bytes);
  void give_back(std::byte* data, std::size_t capacity);

  std::array<std::vector<std::byte*>, kClasses> idle_;
  std::size_t idle_bytes_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace railweave
