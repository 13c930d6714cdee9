// SPDX-License-Identifier: Apache-2.0
#include "ina/flight.hpp"

#include <utility>

namespace railweave::ina {

void FlightList::push_back(std::uint32_t slot) {
  flights_[slot].previous = tail_;
  flights_[slot].next = kEnd;
  (tail_ == kEnd ? head_ : flights_[tail_].next) = slot;
  tail_ = slot;
  ++size_;
}

void FlightList::remove(std::uint32_t slot) {
  const auto [previous, next] = std::pair(flights_[slot].previous, flights_[slot].next);
  (previous == kEnd ? head_ : flights_[previous].next) = next;
  (next == kEnd ? tail_ : flights_[next].previous) = previous;
  --size_;
}

}  // namespace railweave::ina
