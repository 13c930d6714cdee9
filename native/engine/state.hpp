// SPDX-License-Identifier: Apache-2.0
// The state of a switch that outlives a packet, and that its control plane reads and writes.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/cells.hpp"
#include "engine/messages.hpp"
#include "engine/plan.hpp"
#include "engine/table.hpp"

namespace railweave::engine {

inline constexpr std::uint32_t kNoPort = 0x10000;

struct Replica {
  std::uint16_t port;
  std::uint16_t instance;
};

using Replicas = std::vector<Replica>;

struct CloneSession {
  Replicas replicas;
  std::uint32_t packet_length = 0;  // clones are cut to this many bytes; 0: they are not
};

/// Where copies of packets go.
class Replication {
 public:
  /// Without replicas the group or session is removed.
  void set_group(std::uint32_t group, Replicas replicas) {
    if (replicas.empty()) {
      groups_.erase(group);
    } else {
      groups_[group] = std::move(replicas);
    }
  }
  void set_session(std::uint32_t session, CloneSession to) {
    if (to.replicas.empty()) {
      sessions_.erase(session);
    } else {
      sessions_[session] = std::move(to);
    }
  }

  /// nullptr for an unknown group or session.
  const Replicas* group(std::uint64_t group) const { return find(groups_, group); }
  const CloneSession* session(std::uint64_t session) const { return find(sessions_, session); }

 private:
  template <typename T>
  static const T* find(const std::unordered_map<std::uint32_t, T>& map, std::uint64_t number) {
    const auto found = map.find(static_cast<std::uint32_t>(number));
    return found == map.end() ? nullptr : &found->second;
  }

  std::unordered_map<std::uint32_t, Replicas> groups_;
  std::unordered_map<std::uint32_t, CloneSession> sessions_;
};

/// Packets by their fate, since the engine was made.
struct Statistics {
  std::uint64_t received = 0;
  std::uint64_t emitted = 0;
  std::uint64_t dropped = 0;    // by the program: port 511, or an empty or unknown multicast group
  std::uint64_t aborted = 0;    // by a limit (size, rounds, steps of the program) or a failed assertion
  std::uint64_t unnoticed = 0;  // digests and packets to the CPU port that did not fit
};

struct State {
  explicit State(const Plan& plan) : cells(plan) {
    for (const auto& table : plan.tables) {
      tables.push_back(std::make_unique<Table>(table, plan.parameter_words));
    }
  }

  /// Throws std::out_of_range.
  Table& table(std::uint32_t index) { return *tables.at(index); }

  /// Adds an entry, whose direct meter is not configured; its handle. Throws the exceptions of Table::insert.
  std::uint64_t insert(std::uint32_t index, Match match, std::uint32_t action,
                       std::vector<std::uint64_t> parameters) {
    Table& into = table(index);
    const std::uint64_t handle = into.insert(std::move(match), action, std::move(parameters));
    if (const auto meter = into.plan().meter; meter != kNone) {
      cells.set_meter(meter, into.entry(handle).slot, {}, now_us);
    }
    return handle;
  }

  void set_direct_meter(std::uint32_t index, std::uint64_t handle, std::span<const MeterRate> rates) {
    Table& of = table(index);
    if (of.plan().meter == kNone) throw std::invalid_argument("table: no direct meter");
    cells.set_meter(of.plan().meter, of.entry(handle).slot, rates, now_us);
  }

  std::vector<std::unique_ptr<Table>> tables;
  Cells cells;
  Replication replication;
  Messages messages;
  Notices digests, packets;  // for the control plane
  Statistics statistics;
  std::mt19937_64 random;
  std::uint32_t cpu_port = kNoPort;  // packets to this port wait in `packets` for the control plane
  std::size_t priority_queues = 1;   // of each port
  bool egress_queues = false;        // packets for a busy port wait before egress, as in BMv2
  std::uint64_t now_us = 0;          // the time of the last packet
  std::uint64_t start_us = 0;        // when the switch started: the program's timestamps count from here
};

}  // namespace railweave::engine
