// SPDX-License-Identifier: Apache-2.0
// The chunks in flight, one per slot, in the order of their transmissions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/time.hpp"
#include "ina/call.hpp"

namespace railweave::ina {

enum class FlightState : std::uint8_t {
  kUnused,    // no chunk has used this slot yet
  kInFlight,  // sent, its result is awaited
  kLost,      // to be sent again
  kDone,      // the result is in place
};

/// The last chunk that used a slot.
struct Flight {
  FlightState state = FlightState::kUnused;
  bool after_timeout = false;  // the last transmission was the timer's: its result may answer an earlier one
  std::uint32_t transmissions = 0;
  std::uint64_t chunk = 0;  // in the group's sequence
  std::uint64_t call = 0;   // in the endpoint's sequence of calls
  Item item{};
  std::uint64_t sent = 0;  // number of the last transmission
  Time sent_at = 0;
  std::uint32_t previous = 0;  // neighbours in a FlightList
  std::uint32_t next = 0;
};

/// A queue of slots, linked through their flights: any of them leaves it in constant time.
class FlightList {
 public:
  explicit FlightList(std::vector<Flight>& flights) : flights_(flights) {}

  static constexpr std::uint32_t kEnd = ~std::uint32_t{0};
  bool empty() const { return head_ == kEnd; }
  std::uint32_t size() const { return size_; }
  std::uint32_t front() const { return head_; }
  void push_back(std::uint32_t slot);
  void remove(std::uint32_t slot);

 private:
  std::vector<Flight>& flights_;
  std::uint32_t head_ = kEnd;
  std::uint32_t tail_ = kEnd;
  std::uint32_t size_ = 0;
};

}  // namespace railweave::ina
