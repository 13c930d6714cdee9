// SPDX-License-Identifier: Apache-2.0
#include "ina/flight.hpp"

#include <algorithm>
#include <utility>

namespace railweave::ina {

void Flights::grow(std::size_t capacity, std::uint64_t end) {
  if (capacity <= flights_.size()) return;
  Flights larger(packet_bytes_);
  larger.flights_.resize(capacity);
  larger.packets_.resize(capacity * packet_bytes_);
  const std::uint64_t kept = std::min<std::uint64_t>(end, flights_.size());
  for (std::uint64_t chunk = end - kept; chunk < end; ++chunk) {
    larger.at(chunk) = at(chunk);
    std::copy_n(packet(chunk), packet_bytes_, larger.packet(chunk));
  }
  *this = std::move(larger);
}

void FlightList::push_back(std::uint32_t index) {
  flights_.by_index(index).previous = tail_;
  flights_.by_index(index).next = kEnd;
  (tail_ == kEnd ? head_ : flights_.by_index(tail_).next) = index;
  tail_ = index;
  ++size_;
}

void FlightList::remove(std::uint32_t index) {
  const auto [previous, next] = std::pair(flights_.by_index(index).previous, flights_.by_index(index).next);
  (previous == kEnd ? head_ : flights_.by_index(previous).next) = next;
  (next == kEnd ? tail_ : flights_.by_index(next).previous) = previous;
  --size_;
}

void FlightList::clear() {
  head_ = tail_ = kEnd;
  size_ = 0;
}

}  // namespace railweave::ina
