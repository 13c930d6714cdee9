// SPDX-License-Identifier: Apache-2.0
// A network in virtual time for tests: ranks whose messages take random but seeded times, and that is as
// nasty about buffers as the contract of Transport allows.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "collectives/transport.hpp"

namespace railweave {

class SimulatedTransport;

/// Reads a sent buffer only when the send completes, and spoils a receive buffer when it is posted: a machine
/// that uses a buffer too early or twice gives wrong numbers.
class SimulatedNetwork {
 public:
  SimulatedNetwork(int ranks, std::uint64_t seed);
  ~SimulatedNetwork();

  /// A transport lives as long as the network.
  std::unique_ptr<Transport> transport(int rank);
  /// Runs until nothing is left to happen.
  void run();
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
  Time now_ = 0;
  std::uint64_t order_ = 0;
  std::priority_queue<Event> events_;
  std::vector<SimulatedTransport*> transports_;
};

class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(SimulatedNetwork& network, int rank, int ranks);
  std::string_view kind() const override { return "simulated"; }
  int world_size() const override { return ranks_; }
  int rank() const override { return rank_; }
  void set_listener(TransportListener* listener) override { listener_ = listener; }
  void begin(const MessageLabel& label, Time) override { label_ = label; }
  void post_send(int peer, Bytes data, Time now) override;
  void post_receive(int peer, MutableBytes into, Time now) override;
  void announce(const Failure& failure, Time now) override;
  void abort() override { aborted_ = true; }
  void halt(Time) override;
  void restart(std::uint32_t incarnation, Time now) override;
  bool ready() const override { return ready_; }
  RailStats stats() const override { return stats_; }

 private:
  struct Message {
    std::uint32_t incarnation;
    MessageLabel label;
    std::vector<std::byte> data;
  };
  struct Receive {
    MessageLabel label;
    MutableBytes into;
  };
  struct Outgoing {
    MessageLabel label;
    Bytes data;
  };
  struct Peer {
    std::deque<Outgoing> sending;
    std::deque<Message> arrived;
    std::deque<Receive> posted;
  };

  void check_neighbour(int peer) const;
  void after_delay(std::function<void()> action);
  void leave(int peer);
  void arrive(int peer, Message message);
  void match(int peer);
  void fail(const Failure& failure);

  SimulatedNetwork& network_;
  const int rank_;
  const int ranks_;
  TransportListener* listener_ = nullptr;
  MessageLabel label_{};
  std::vector<Peer> peers_;
  std::vector<Time> last_arrival_;  // at each peer, of what this rank has sent
  std::uint32_t incarnation_ = 0;
  std::uint64_t halts_ = 0;
  bool ready_ = true;
  bool aborted_ = false;
  RailStats stats_;
};

}  // namespace railweave
