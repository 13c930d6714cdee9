// SPDX-License-Identifier: Apache-2.0
// Arrays that begin with a cache line: loads and stores of whole vectors then never touch two lines.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace railweave {

inline constexpr std::size_t kCacheLine = 64;

template <typename T>
struct LineAllocator {
  using value_type = T;

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{kCacheLine}));
  }
  void deallocate(T* array, std::size_t) { ::operator delete(array, std::align_val_t{kCacheLine}); }
  bool operator==(const LineAllocator&) const = default;
};

template <typename T>
using LineAligned = std::vector<T, LineAllocator<T>>;

}  // namespace railweave
