// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdlib>

#include "core/time.hpp"

namespace railweave {

/// Round-trip time and its variation, smoothed as in RFC 6298, section 2. Both 0 before the first sample; the
/// time is at least 1 ns after it.
class RoundTrip {
 public:
  bool measured() const { return smoothed_ > 0; }
  Duration smoothed() const { return smoothed_; }
  Duration variation() const { return variation_; }

  void sample(Duration rtt) {
    if (!measured()) {
      smoothed_ = std::max<Duration>(rtt, 1);
      variation_ = rtt / 2;
      return;
    }
    variation_ += (std::abs(rtt - smoothed_) - variation_) / 4;
    smoothed_ = std::max<Duration>(smoothed_ + (rtt - smoothed_) / 8, 1);
  }

 private:
  Duration smoothed_ = 0, variation_ = 0;
};

}  // namespace railweave
