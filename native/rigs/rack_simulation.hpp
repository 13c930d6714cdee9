// SPDX-License-Identifier: Apache-2.0
// A rack in virtual time for tests: endpoints around one switch, over links with loss, duplicates and delay.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "ina/endpoint.hpp"
#include "rigs/network_simulation.hpp"

namespace railweave::ina {

struct RackOptions {
  std::uint32_t lanes;
  std::uint32_t slots;
  int ranks;
  double loss;       // probability that a packet is lost on a link
  double duplicate;  // probability that it arrives twice
};

class SimulatedRack {
 public:
  /// Called with the rank's place in the rack.
  using OnDone = std::function<void(int place)>;
  using OnFailure = std::function<void(int place, const Failure&)>;

  SimulatedRack(SimulatedNetwork& network, const RackOptions& options, std::uint64_t seed, OnDone done,
                OnFailure failure);

  void start(int place, const Slice& slice);
  void halt(int place);
  /// Call it when all ranks have halted.
  void restart();
  void abort(int place);

 private:
  struct Slot {
    std::uint32_t tag = 0;  // rounds, from 1
    std::uint32_t seen = 0;
    std::uint32_t mark = 0;
    std::uint8_t flags = 0;
    std::uint8_t owner = 0xff;
    std::vector<std::byte> lanes{};
  };
  struct Host {
    explicit Host(const EndpointOptions& options) : endpoint(options) {}
    Endpoint endpoint;
    Time timer = kNever;
  };

  void send(std::vector<std::byte> packet, std::function<void(std::vector<std::byte>)> arrive);
  void at_switch(const std::vector<std::byte>& packet);
  void merge(Slot& slot, const Header& header, Bytes lanes) const;
  void answer(const Slot& slot, Header header, std::uint8_t child);
  void pump(int place);
  bool chance(double probability) { return draw_(random_) < probability; }

  SimulatedNetwork& network_;
  const RackOptions options_;
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> draw_{0, 1};
  OnDone done_;
  OnFailure failure_;
  std::map<std::uint16_t, Slot> slots_;
  std::deque<Host> hosts_;
};

}  // namespace railweave::ina
