// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "core/time.hpp"

namespace railweave {

/// The longest duration of the last seconds. Of two buckets, the older one is forgotten.
class LongestLately {
 public:
  explicit LongestLately(Duration bucket) : bucket_(bucket) {}

  void add(Duration duration, Time now) {
    if (now - since_ >= bucket_) {
      former_ = now - since_ < 2 * bucket_ ? current_ : 0;
      current_ = 0;
      since_ = now;
    }
    current_ = std::max(current_, duration);
  }

  Duration get(Time now) const {
    if (now - since_ >= 2 * bucket_) return 0;
    return now - since_ >= bucket_ ? current_ : std::max(current_, former_);
  }

 private:
  Duration bucket_;
  Duration current_ = 0;
  Duration former_ = 0;
  Time since_ = 0;
};

}  // namespace railweave
