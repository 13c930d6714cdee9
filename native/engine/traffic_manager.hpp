// SPDX-License-Identifier: Apache-2.0
// The traffic manager of simple_switch: resubmission, cloning, multicast, recirculation, learning. Copies
// leave in the order in which BMv2 puts them into its egress queues. Packets wait in such a queue only while
// the port is busy (State::egress_queues).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "engine/machine.hpp"
#include "engine/packet.hpp"
#include "engine/state.hpp"
#include "engine/trace.hpp"

namespace railweave::engine {

inline constexpr std::uint16_t kDropPort = 511;

// BMv2 lets a packet recirculate and multiply for ever. Here each received packet has these bounds. Requests
// beyond them are dropped and counted as aborted.
inline constexpr int kMaxPasses = 4096;                       // through ingress or egress
inline constexpr int kMaxRounds = 256;                        // resubmissions and recirculations
inline constexpr std::size_t kMaxHeldBytes = 64u << 20;       // of packets that wait for ingress or egress
inline constexpr std::size_t kMinHeld = 64, kMaxHeld = 4096;  // packets that may wait, of any size
inline constexpr std::size_t kQueuePackets = 64;              // of a priority of a port, as in BMv2

/// The packets in one queue of a port.
struct OutputBacklog {
  std::uint32_t packets = 0;
  std::uint64_t wait_us = 0;  // until a packet sent now would leave
};

/// Where packets go that leave the switch.
struct OutputSink {
  virtual ~OutputSink() = default;
  /// `packet` is valid during the call only.
  virtual void emit(std::uint16_t port, const Pieces& packet) = 0;
  /// A digest or a packet for the control plane waits in the engine.
  virtual void noticed() {}
  virtual OutputBacklog backlog(std::uint16_t /*port*/, std::size_t /*priority*/) const { return {}; }
  /// Whether the port can take a packet. If not, packets wait in the engine until `Engine::release`.
  virtual bool ready(std::uint16_t /*port*/) { return true; }
  /// A packet was dropped because the port's queue in the engine was full.
  virtual void overflowed(std::uint16_t /*port*/) {}
};

class TrafficManager {
 public:
  TrafficManager(State& state, std::size_t phv_bytes);

  /// Runs one packet to its end: everything that leaves is emitted before the call returns.
  void process(Machine& machine, std::uint16_t port, Bytes bytes, OutputSink& sink);

  /// Runs the next packet that waits at this port from egress on; false if no packet waits.
  bool release(Machine& machine, std::uint16_t port, OutputSink& sink);

 private:
  /// A packet on its way to egress; without replicas it goes to `port`.
  struct Departure {
    std::unique_ptr<Packet> packet;
    std::span<const Replica> replicas;
    std::uint16_t port = 0;
  };
  /// A packet that waits before egress until its port can take it.
  struct Queued {
    std::unique_ptr<Packet> packet;
    std::vector<std::byte> bytes;
    std::uint64_t since_us;
    int passes_left, rounds_left;
  };
  using Queues = std::map<std::pair<std::uint16_t, std::size_t>, std::deque<Queued>>;
  struct Recirculated {
    std::unique_ptr<Packet> packet;
    std::vector<std::byte> bytes;
  };

  void drop(Reason reason);
  void abort(Reason reason);
  bool spend_pass();
  bool spend_round();

  void ingress(Packet& packet);
  bool resubmit(Packet& packet, std::uint64_t received_length);
  void multicast(Packet& packet, std::uint64_t group);
  void depart(Packet& packet, std::span<const Replica> replicas, std::uint16_t port);
  void hold(const Packet& packet, std::span<const Replica> replicas, std::uint16_t port);
  void drain();
  void send_copies(Packet& packet, std::span<const Replica> replicas, std::uint16_t port);
  const CloneSession* session(const Packet& packet);
  void clone_ingress(const Packet& packet);
  void clone_egress(const Packet& packet);
  void learn(const Packet& packet);
  void egress(Packet& packet, std::uint16_t port);
  OutputBacklog backlog(std::uint16_t port, std::size_t priority) const;
  std::size_t queued(std::uint16_t port, std::size_t priority) const;
  void enqueue(const Packet& packet, std::uint16_t port, std::size_t priority);
  void leave(Packet& packet, std::uint16_t port, std::size_t priority, std::uint64_t since_us,
             const OutputBacklog& backlog);
  void finish();
  void recirculate(const Packet& packet, const Pieces& bytes);
  void emit(std::uint16_t port, const Pieces& packet);
  void notify(Notices& notices, std::uint32_t list, Bytes bytes);

  std::unique_ptr<Packet> take_packet();
  void give_packet(std::unique_ptr<Packet> packet) { free_.push_back(std::move(packet)); }
  void start(Packet& packet) const;
  void copy(const Packet& from, Packet& to) const;
  void copy_whole(const Packet& from, Packet& to) const;
  void keep_fields(const Packet& from, Packet& to, std::uint64_t list, std::uint64_t instance_type) const;
  void set(Packet& packet, Intrinsic field, std::uint64_t value) const;
  std::uint64_t get(const Packet& packet, Intrinsic field) const;

  State& state_;
  std::size_t phv_bytes_, held_limit_;
  // Of the received packet that is being processed.
  Machine* machine_ = nullptr;
  OutputSink* sink_ = nullptr;
  int passes_left_ = 0, rounds_left_ = 0;
  // Memory that is used again, so that packets need no allocation.
  std::vector<std::byte> whole_;
  std::vector<std::unique_ptr<Packet>> free_;
  std::unique_ptr<Packet> arrival_;
  std::vector<Departure> departures_;  // first in, first out, from `next_departure_` on
  std::size_t next_departure_ = 0;
  std::vector<Recirculated> recirculated_;
  std::size_t recirculated_first_ = 0, recirculated_end_ = 0, recirculated_bytes_ = 0;
  Queues queues_;  // by port and priority, none empty
  std::size_t queued_bytes_ = 0;
};

}  // namespace railweave::engine
