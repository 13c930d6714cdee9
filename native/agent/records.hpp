// SPDX-License-Identifier: Apache-2.0
// Records of completed slices. Each reader gets each record once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/time.hpp"

namespace railweave {

/// One completed slice. Times are CLOCK_MONOTONIC.
struct SliceRecord {
  std::uint32_t op_index;
  std::size_t rail;
  Time start;  // when the channel was free for it
  Time end;
  std::uint64_t bytes;  // of the whole tensor
  bool repair;          // on the rail's repair channel, which is TCP for all kinds of rail
};

class Records {
 public:
  enum Reader : std::size_t { kUser, kStriper, kReaders };

  void add(const SliceRecord& record) {
    if (held_.size() == kMost) drop_first();
    held_.push_back(record);
  }

  /// The records that this reader has not read, oldest first; at most the last 65,536.
  std::vector<SliceRecord> drain(Reader reader) {
    std::vector<SliceRecord> fresh(held_.begin() + static_cast<std::ptrdiff_t>(read_[reader]), held_.end());
    read_[reader] = held_.size();
    while (!held_.empty() && read_[kUser] > 0 && read_[kStriper] > 0) drop_first();
    return fresh;
  }

 private:
  static constexpr std::size_t kMost = 1 << 16;

  void drop_first() {
    held_.pop_front();
    for (std::size_t& read : read_) read -= read > 0 ? 1 : 0;
  }

  std::deque<SliceRecord> held_;
  std::array<std::size_t, kReaders> read_{};  // number of held records that each reader has read
};

}  // namespace railweave
