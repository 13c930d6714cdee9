// SPDX-License-Identifier: Apache-2.0
// The contributions that a group may still need, as packets, with the state of each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/time.hpp"
#include "ina/call.hpp"
#include "ina/seal.hpp"

namespace railweave::ina {

enum class FlightState : std::uint8_t {
  kBuilt,     // not sent to this group yet
  kInFlight,  // sent, its result is awaited
  kLost,      // to be sent again
  kDone,      // the group's result came
};

/// The state of one contribution.
struct Flight {
  FlightState state = FlightState::kBuilt;
  bool keeps = true;           // its result has lanes for this rank
  bool held = false;           // the result is in place, by this group or the one before a move
  bool after_timeout = false;  // the last transmission was the timer's: its result may answer an earlier one
  std::uint32_t transmissions = 0;  // to this group
  std::uint32_t refused = 0;        // results of this group whose lanes were not the sums
  std::uint32_t redone = 0;         // moves requested to repeat its sum
  std::uint32_t mismatches = 0;     // groups that reported different marks
  bool redo = false;                // a move is awaited
  Pads pads{};                      // of its seal
  std::uint64_t call = 0;           // in the endpoint's sequence of calls
  Item item{};
  std::uint64_t sent = 0;  // number of the last transmission
  Time sent_at = 0;
  std::uint32_t previous = 0;  // neighbours in a FlightList
  std::uint32_t next = 0;
};

/// The latest contributions, by chunk number. After a move they go to the new group again.
class Flights {
 public:
  explicit Flights(std::size_t packet_bytes) : packet_bytes_(packet_bytes) {}

  std::size_t capacity() const { return flights_.size(); }
  /// Makes room for `capacity` contributions; keeps those up to `end`. Packets and flights move in memory.
  void grow(std::size_t capacity, std::uint64_t end) {
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

  std::uint32_t index(std::uint64_t chunk) const {
    return static_cast<std::uint32_t>(chunk % flights_.size());
  }
  Flight& at(std::uint64_t chunk) { return flights_[index(chunk)]; }
  const Flight& at(std::uint64_t chunk) const { return flights_[index(chunk)]; }
  /// Packets of consecutive chunks are adjacent, so that they can leave as one super-packet.
  std::byte* packet(std::uint64_t chunk) { return packets_.data() + index(chunk) * packet_bytes_; }
  const std::byte* packet(std::uint64_t chunk) const {
    return packets_.data() + index(chunk) * packet_bytes_;
  }
  Flight& by_index(std::uint32_t index) { return flights_[index]; }
  const Flight& by_index(std::uint32_t index) const { return flights_[index]; }
  std::byte* packet_by_index(std::uint32_t index) { return packets_.data() + index * packet_bytes_; }

 private:
  std::size_t packet_bytes_;
  std::vector<Flight> flights_;
  std::vector<std::byte> packets_;
};

/// A queue of flights, linked through the flights themselves. Any flight can be removed in constant time.
/// Flights are given by index.
class FlightList {
 public:
  explicit FlightList(Flights& flights) : flights_(flights) {}

  static constexpr std::uint32_t kEnd = ~std::uint32_t{0};
  bool empty() const { return head_ == kEnd; }
  std::uint32_t size() const { return size_; }
  std::uint32_t front() const { return head_; }
  void push_back(std::uint32_t index) {
    flights_.by_index(index).previous = tail_;
    flights_.by_index(index).next = kEnd;
    (tail_ == kEnd ? head_ : flights_.by_index(tail_).next) = index;
    tail_ = index;
    ++size_;
  }
  void remove(std::uint32_t index) {
    const auto [previous, next] = std::pair(flights_.by_index(index).previous, flights_.by_index(index).next);
    (previous == kEnd ? head_ : flights_.by_index(previous).next) = next;
    (next == kEnd ? tail_ : flights_.by_index(next).previous) = previous;
    --size_;
  }
  void clear() {
    head_ = tail_ = kEnd;
    size_ = 0;
  }

 private:
  Flights& flights_;
  std::uint32_t head_ = kEnd;
  std::uint32_t tail_ = kEnd;
  std::uint32_t size_ = 0;
};

}  // namespace railweave::ina
