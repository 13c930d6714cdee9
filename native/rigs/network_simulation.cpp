// SPDX-License-Identifier: Apache-2.0
#include "rigs/network_simulation.hpp"

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>

#include "collectives/choose.hpp"

namespace railweave {
namespace {

constexpr std::byte kSpoilt{0xab};
constexpr int kLost = 200;  // a lost message arrives after this many delays

}  // namespace

class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(SimulatedNetwork& network, int rank, int ranks)
      : network_(network), rank_(rank), ranks_(ranks), peers_(ranks), last_arrival_(ranks) {}

  std::string_view kind() const override { return "simulated"; }
  int world_size() const override { return ranks_; }
  int rank() const override { return rank_; }
  void set_listener(TransportListener* listener) override { listener_ = listener; }
  void begin(const MessageLabel& label, Time) override {
    label_ = label;
    after_delay([this] { check_arrived(); });
  }
  void post_send(int peer, Bytes data, Time) override {
    check_neighbour(peer);
    if (aborted_) return;
    peers_[peer].sending.push_back({.label = label_, .data = data});
    const bool at_once = peers_[peer].sending.size() == 1 && network_.toss();
    if (at_once) return leave(peer);
    after_delay([this, peer] { leave(peer); });
  }
  void post_receive(int peer, MutableBytes into, Time) override {
    check_neighbour(peer);
    if (aborted_) return;
    std::fill(into.begin(), into.end(), kSpoilt);
    peers_[peer].posted.push_back({.label = label_, .into = into});
    if (network_.toss()) return match(peer);
    after_delay([this, peer] { match(peer); });
  }
  void announce(const Failure& failure, Time) override {
    for (SimulatedTransport* peer : network_.transports_) {
      if (peer != this) network_.after(network_.delay(), [peer, failure] { peer->fail(failure); });
    }
  }
  void abort() override { aborted_ = true; }
  void halt(Time) override {
    ++halts_;
    aborted_ = true;
    ready_ = false;
    for (Peer& peer : peers_) {
      peer.sending.clear();
      peer.posted.clear();
    }
  }
  void restart(std::uint32_t incarnation, Time) override {
    if (ready_ || incarnation <= incarnation_) throw std::logic_error("not halted, or not a new incarnation");
    incarnation_ = incarnation;
    aborted_ = false;
    for (Peer& peer : peers_)
      std::erase_if(peer.arrived, [&](const Message& message) { return message.incarnation < incarnation_; });
    after_delay([this] {
      ready_ = true;
      listener_->joined(network_.now());
    });
  }
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

  // Fails if the peer is no neighbour: real transports that know only neighbours would drop the message.
  void check_neighbour(int peer) const {
    const std::vector<int> known = neighbours(rank_, ranks_);
    if (network_.extra_peers_[rank_].contains(peer)) return;
    if (!std::binary_search(known.begin(), known.end(), peer))
      throw std::logic_error("rank " + std::to_string(peer) + " is no neighbour of rank " +
                             std::to_string(rank_) + " of " + std::to_string(ranks_));
  }
  /// A halt cancels the action.
  void after_delay(std::function<void()> action) {
    network_.after(network_.delay(), [this, halts = halts_, action = std::move(action)] {
      if (halts == halts_) action();
    });
  }
  void leave(int peer) {
    if (aborted_) return;
    const Outgoing outgoing = peers_[peer].sending.front();
    peers_[peer].sending.pop_front();
    Message message{.incarnation = incarnation_,
                    .label = outgoing.label,
                    .data = {outgoing.data.begin(), outgoing.data.end()}};
    last_arrival_[peer] = std::max(last_arrival_[peer], network_.now() + network_.delay());
    stats_.bytes_sent += message.data.size();
    network_.after(last_arrival_[peer] - network_.now(),
                   [this, peer, message = std::move(message)]() mutable {
                     network_.transports_[peer]->arrive(rank_, std::move(message));
                   });
    if (!network_.loses_acknowledgements_ || network_.toss()) return listener_->sent(peer, network_.now());
    network_.after(kLost * network_.delay(), [this, peer, halts = halts_] {
      if (halts == halts_ && !aborted_) listener_->sent(peer, network_.now());
    });
  }
  // Like the transports of real networks: a message of an older incarnation is dropped. A message of a later
  // one waits until this rank reaches that incarnation. A message of a call that this rank makes differently
  // is found even if no receive waits for it.
  void arrive(int peer, Message message) {
    if (message.incarnation < incarnation_) return;
    if (message.incarnation == incarnation_ && aborted_) return;
    peers_[peer].arrived.push_back(std::move(message));
    match(peer);
    check_arrived();
  }
  void check_arrived() {
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peers_[peer].arrived.empty()) continue;
      const Message& message = peers_[peer].arrived.front();
      const auto own = listener_->own_label(key_of(message.label));
      if (message.incarnation == incarnation_ && own && *own != message.label)
        return fail(mismatch(rank_, *own, peer, message.label));
    }
  }
  void match(int peer) {
    if (aborted_ || peers_[peer].arrived.empty() || peers_[peer].posted.empty()) return;
    if (peers_[peer].arrived.front().incarnation > incarnation_) return;
    const Message message = std::move(peers_[peer].arrived.front());
    const Receive receive = peers_[peer].posted.front();
    peers_[peer].arrived.pop_front();
    peers_[peer].posted.pop_front();
    const bool agree = message.label == receive.label && message.data.size() == receive.into.size();
    if (!agree) return fail(mismatch(rank_, receive.label, peer, message.label));
    std::copy(message.data.begin(), message.data.end(), receive.into.begin());
    stats_.bytes_received += message.data.size();
    listener_->received(peer, network_.now());
    match(peer);
  }
  void fail(const Failure& failure) {
    if (!std::exchange(aborted_, true)) listener_->failed(failure, network_.now());
  }

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

SimulatedNetwork::SimulatedNetwork(int ranks, std::uint64_t seed) : random_(seed), transports_(ranks) {}

std::unique_ptr<Transport> SimulatedNetwork::transport(int rank) {
  auto transport = std::make_unique<SimulatedTransport>(*this, rank, static_cast<int>(transports_.size()));
  transports_[rank] = transport.get();
  return transport;
}

bool SimulatedNetwork::step(Time latest) {
  if (events_.empty() || events_.top().at > latest) return false;
  const Event event = events_.top();
  events_.pop();
  now_ = event.at;
  event.action();
  return true;
}

void SimulatedNetwork::after(Duration delay, std::function<void()> action) {
  events_.push({.at = now_ + delay, .order = order_++, .action = std::move(action)});
}

Duration SimulatedNetwork::delay() { return static_cast<Duration>(random_() % (100 * kMicrosecond)); }

}  // namespace railweave
