// SPDX-License-Identifier: Apache-2.0
// A network in virtual time for tests. Messages take random but seeded times. Buffers are treated as badly as
// the contract of Transport allows.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <vector>

#include "collectives/transport.hpp"

namespace railweave {

class SimulatedTransport;

/// Reads a sent buffer only when the send completes, and overwrites a receive buffer when it is posted. So a
/// machine that uses a buffer too early or twice gives wrong numbers.
class SimulatedNetwork {
 public:
  SimulatedNetwork(int ranks, std::uint64_t seed);

  /// Ranks with which this one exchanges messages, besides its neighbours.
  void add_peers(int rank, const std::vector<int>& ranks) {
    extra_peers_[rank].insert(ranks.begin(), ranks.end());
  }
  /// Some acknowledgements then arrive only after all effects of their messages.
  void lose_acknowledgements() { loses_acknowledgements_ = true; }
  /// A transport lives as long as the network.
  std::unique_ptr<Transport> transport(int rank);
  /// Runs until no event is left, or until `latest`.
  void run(Time latest = kNever) {
    while (step(latest)) {
    }
  }
  /// Runs the next event; false if no event is left.
  bool step(Time latest = kNever);
  void after(Duration delay, std::function<void()> action);
  Time now() const { return now_; }

 private:
  friend class SimulatedTransport;

  struct Event {
    Time at;
    std::uint64_t order;
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);
    }
  };

  Duration delay();
  bool toss() { return random_() % 2 == 0; }

  std::mt19937_64 random_;
  bool loses_acknowledgements_ = false;
  Time now_ = 0;
  std::uint64_t order_ = 0;
  std::priority_queue<Event> events_;
  std::vector<SimulatedTransport*> transports_;
  std::map<int, std::set<int>> extra_peers_;  // by rank
};

}  // namespace railweave
