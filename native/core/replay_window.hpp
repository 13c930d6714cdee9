// SPDX-License-Identifier: Apache-2.0
// Which of a sender's numbered messages have come. Each is taken once, also if messages overtake others.
#pragma once

#include <cstdint>

namespace railweave {

/// The window of RFC 4303, section 3.4.3. The sender counts from 1.
class ReplayWindow {
 public:
  static constexpr std::uint64_t kWidth = 64;

  /// Take a number. Return false if it was taken before, or is too old to tell.
  bool take(std::uint64_t number) {
    if (number > newest_) {
      const std::uint64_t ahead = number - newest_;
      taken_ = ahead < kWidth ? taken_ << ahead | 1 : 1;
      newest_ = number;
      return true;
    }
    const std::uint64_t behind = newest_ - number;
    if (behind >= kWidth || (taken_ >> behind & 1) != 0) return false;
    taken_ |= std::uint64_t{1} << behind;
    return true;
  }

 private:
  std::uint64_t newest_ = 0;
  std::uint64_t taken_ = 1;  // bit i: newest_ - i
};

}  // namespace railweave
