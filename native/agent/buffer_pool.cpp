// SPDX-License-Identifier: Apache-2.0
#include "agent/buffer_pool.hpp"

#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

namespace railweave {

BufferPool::Buffer::Buffer(Buffer&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      capacity_(std::exchange(other.capacity_, 0)) {}

BufferPool::Buffer& BufferPool::Buffer::operator=(Buffer&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

BufferPool::Buffer::~Buffer() {
  if (data_ != nullptr) pool_->give_back(data_, capacity_);
}

BufferPool::~BufferPool() {
  for (const auto& buffers : idle_) {
    for (std::byte* data : buffers) std::free(data);
  }
}

std::size_t BufferPool::class_of(std::size_t bytes) {
  return bytes <= kSmallest ? 0 : std::bit_width(bytes - 1) - std::bit_width(kSmallest - 1);
}

BufferPool::Buffer BufferPool::take(std::size_t bytes) {
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

void BufferPool::give_back(std::byte* data, std::size_t capacity) {
  taken_ -= capacity;
  if (idle_bytes_ + capacity > kMostIdle) return std::free(data);
  idle_[class_of(capacity)].push_back(data);
  idle_bytes_ += capacity;
}

}  // namespace railweave
