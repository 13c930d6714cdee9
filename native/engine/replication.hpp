// SPDX-License-Identifier: Apache-2.0
// Where copies of packets go: multicast groups and clone sessions.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace railweave::engine {

struct Replica {
  std::uint16_t port;
  std::uint16_t instance;
};

using Replicas = std::vector<Replica>;

struct CloneSession {
  Replicas replicas;
  std::uint32_t packet_length = 0;  // clones are cut to this many bytes; 0: they are not
};

class Replication {
 public:
  /// No replicas: the group or session goes.
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

  /// nullptr: there is none.
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

}  // namespace railweave::engine
