// SPDX-License-Identifier: Apache-2.0
// The hosts' part in an allreduce: rings, one tree, and a ring of racks. network.hpp has the network.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "network.hpp"

namespace railweave_simulation {

using Done = std::function<void(std::uint32_t)>;  // at a host

// The blocks of a ring at a host, if they come one by one. `there` returns their number. `complete` is called
// when more blocks are complete.
struct Blocks {
  std::function<std::uint32_t(std::uint32_t)> there;
  Done complete;
};

// Steps of a ring: in each, a member sends a message of equal size on, once it has that of the step before.
// An allreduce has 2 (L - 1) steps, its halves have L - 1. If a member is a rack, each of its hosts sends
// and receives an equal part of the message.
class Ring : public std::enable_shared_from_this<Ring> {
 public:
  Ring(Plane& plane, const std::vector<std::vector<std::uint32_t>>& members, std::uint64_t bytes,
       std::uint32_t steps, Done done, Blocks blocks = {})
      : plane_(plane), steps_(steps), done_(std::move(done)), blocks_(std::move(blocks)) {
    const auto message = std::max<std::uint64_t>(1, (bytes + members.size() - 1) / members.size());
    for (std::size_t member = 0; member < members.size(); ++member) {
      const auto& before = members[(member + members.size() - 1) % members.size()];
      const auto& here = members[member];
      const auto& next = members[(member + 1) % members.size()];
      for (std::size_t place = 0; place < here.size(); ++place) {
        Part& part = parts_[here[place]];
        part.received.resize(here.size() > 1 ? 1 : before.size());
        if (here.size() > 1 && next.size() > 1)
          part.next.push_back({next[place], 0});
        else if (here.size() > 1)
          part.next.push_back({next[0], place});
        else
          for (const auto host : next) part.next.push_back({host, 0});
        part.bytes = std::max<std::uint64_t>(1, message / std::max(here.size(), next.size()));
      }
    }
  }

  void start(std::uint32_t host) {
    parts_.at(host).started = true;
    go_on(host);
  }
  // More blocks are there.
  void go_on(std::uint32_t host) {
    Part& part = parts_.at(host);
    if (!part.started) return;
    const auto received = *std::min_element(part.received.begin(), part.received.end());
    const auto there = blocks_.there ? blocks_.there(host) : steps_;
    const auto may = there > steps_ / 2 ? steps_ : there;  // a step needs a block, the second half none
    for (; part.sent < may && part.sent <= received; ++part.sent)
      for (const auto& next : part.next)
        plane_.stream(host, next.host).send(part.bytes, [self = shared_from_this(), next] {
          ns3::Simulator::Schedule(ns3::Seconds(self->plane_.fabric.message_s), [self, next] {
            ++self->parts_.at(next.host).received[next.source];
            self->go_on(next.host);
          });
        });
    if (blocks_.complete) blocks_.complete(host);
    if (received == steps_ && part.sent == steps_) {
      part.started = false;
      done_(host);
    }
  }
  // How many blocks are complete.
  std::uint32_t complete(std::uint32_t host) const {
    const auto& part = parts_.at(host);
    const auto received = std::min(*std::min_element(part.received.begin(), part.received.end()), part.sent);
    return received < steps_ / 2 ? 0 : received - steps_ / 2 + 1;
  }
  void start_all() {
    for (const auto& [host, part] : parts_) start(host);
  }

 private:
  struct Next {
    std::uint32_t host;
    std::size_t source;  // which of those that it waits for
  };
  struct Part {
    bool started = false;
    std::uint32_t sent = 0;
    std::vector<std::uint32_t> received;  // by source
    std::vector<Next> next;
    std::uint64_t bytes = 0;
  };

  Plane& plane_;
  const std::uint32_t steps_;
  const Done done_;
  const Blocks blocks_;
  std::unordered_map<std::uint32_t, Part> parts_;  // by host
};

// Hosts, each a member of a ring.
inline std::vector<std::vector<std::uint32_t>> singles(std::uint32_t first, std::uint32_t count,
                                                       std::uint32_t step = 1) {
  std::vector<std::vector<std::uint32_t>> members;
  for (std::uint32_t place = 0; place < count; ++place) members.push_back({first + place * step});
  return members;
}

// Counts hosts that are complete, and calls `done` after the last one.
inline Done last_of(std::uint32_t hosts, std::function<void()> done) {
  auto left = std::make_shared<std::uint32_t>(hosts);
  return [left, done](std::uint32_t) {
    if (--*left == 0) done();
  };
}

// A call begins on all hosts at once. `last` comes once per host, with its result.

// All hosts in a ring, the tensor in `parts` that go round at once; `last` comes once per host and part.
inline void begin_ring(Plane& plane, std::uint64_t bytes, std::uint32_t parts, const Done& last) {
  for (std::uint32_t part = 0; part < parts; ++part)
    std::make_shared<Ring>(plane, singles(0, plane.size()), bytes / parts, 2 * (plane.size() - 1), last)
        ->start_all();
}

// Rings in racks scatter sums, a ring of racks for each place adds them up, rings in racks gather.
inline void begin_hierarchical(Plane& plane, std::uint64_t bytes, const Done& last) {
  const auto racks = plane.fabric.racks, ranks = plane.fabric.hosts;
  std::vector<std::shared_ptr<Ring>> down, across;
  for (std::uint32_t rack = 0; rack < racks; ++rack)
    down.push_back(std::make_shared<Ring>(plane, singles(rack * ranks, ranks), bytes, ranks - 1, last));
  for (std::uint32_t place = 0; place < ranks; ++place)
    across.push_back(
        std::make_shared<Ring>(plane, singles(place, racks, ranks), bytes / ranks, 2 * (racks - 1),
                               [down, ranks](std::uint32_t host) { down[host / ranks]->start(host); }));
  for (std::uint32_t rack = 0; rack < racks; ++rack)
    std::make_shared<Ring>(plane, singles(rack * ranks, ranks), bytes, ranks - 1,
                           [across, ranks](std::uint32_t host) { across[host % ranks]->start(host); })
        ->start_all();
}

// One tree: leaves add for their hosts, the spine for the leaves.
inline void begin_tree(Plane& plane, std::uint64_t bytes, const Done& last) {
  const auto task = plane.new_task();
  for (auto& leaf : plane.leaves) leaf->add(task, false, plane.fabric.racks > 1);
  plane.spine->add(task, false, false);
  for (std::uint32_t host = 0; host < plane.size(); ++host)
    plane.racked[host]->contribute(task, bytes, false, [last, host] { last(host); });
}

// A ring of the first `ina` racks and of the hosts of all other racks (native/ina/composed.hpp). A rack sums
// a segment, and each host gets a column of the sum. The columns go round the ring. Then the rack hands them
// out. Segments overlap.
class ComposedCall {
 public:
  ComposedCall(Plane& plane, std::uint32_t ina, std::uint64_t bytes, std::uint64_t message)
      : plane_(plane), ina_(ina), ranks_(plane.fabric.hosts) {
    const auto most = message * members();
    for (std::uint64_t left = bytes, issued = 0; left > 0;) {
      auto size = std::min(most, std::max(most / kFirst, issued));
      if (left <= std::max<std::uint64_t>(1, most / kLast))
        size = left;
      else if (left < 2 * size)
        size = (left + 1) / 2;
      segments_.push_back(size);
      issued += size, left -= size;
    }
    const auto largest = *std::max_element(segments_.begin(), segments_.end());
    if (largest / members() >= 2 * plane.fabric.mtu) turns_ = std::gcd(ranks_, kTurns);
    pieces_ =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(largest / ranks_ / kPiece, 1, kMostPieces));
  }

  void begin(Done last) {
    last_ = std::move(last);
    states_.assign(plane_.size(), {});
    rack_tasks_.assign(ina_, {});
    for (std::uint32_t rack = 0; rack < ina_; ++rack)
      for (std::uint32_t task = 0; task < 2 * count() * pieces_; ++task) {
        rack_tasks_[rack].push_back(plane_.new_task());
        plane_.leaves[rack]->add(rack_tasks_[rack].back(), true, false);
      }
    rings_.assign(count(), {});
    for (std::uint32_t turn = 0; turn < turns_; ++turn) {
      auto members = singles(ina_ * ranks_, plane_.size() - ina_ * ranks_);
      for (std::uint32_t rack = 0; rack < ina_; ++rack) {
        auto& hosts = members.emplace_back(ranks_ / turns_);
        std::iota(hosts.begin(), hosts.end(), rack * ranks_ + turn * ranks_ / turns_);
      }
      const auto steps = 2 * static_cast<std::uint32_t>(members.size() - 1);
      for (std::uint32_t segment = 0; segment < count(); ++segment)
        rings_[segment].push_back(std::make_shared<Ring>(
            plane_, members, segments_[segment] / turns_, steps,
            [this](std::uint32_t host) { came_round(host); },
            Blocks{.there = [this, segment](std::uint32_t host) { return there(host, segment); },
                   .complete = [this](std::uint32_t host) { in_rack(host); }}));
    }
    for (std::uint32_t host = 0; host < plane_.size(); ++host) {
      if (single(host)) states_[host].summed = count() * pieces_;
      in_rack(host);
      go_round(host);
    }
  }

 private:
  struct State {
    std::uint32_t asked = 0, summed = 0, handing = 0, handed = 0;  // pieces
    std::uint32_t started = 0, round = 0;                          // segments
    std::uint32_t turns = 0;  // that the segment in the ring has still to come round
  };
  static constexpr std::uint32_t kDepth = 4, kTurns = 4, kFirst = 8, kLast = 4, kMostPieces = 8;
  static constexpr std::uint64_t kPiece = 4096;  // bytes of a column

  bool single(std::uint32_t host) const { return host >= ina_ * ranks_; }
  std::uint32_t members() const { return ina_ + (plane_.fabric.racks - ina_) * ranks_; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(segments_.size()); }

  // The rack first sums up to kDepth segments. Then it alternates: it hands out one segment, and sums the
  // next one. It does so piece by piece.
  void in_rack(std::uint32_t host) {
    if (single(host)) return;
    State& state = states_[host];
    auto& rank = *plane_.racked[host];
    const auto& tasks = rack_tasks_[host / ranks_];
    while (true) {
      if (state.asked < std::min(count(), state.handing / pieces_ + kDepth) * pieces_) {
        const auto piece = state.asked++;
        rank.contribute(tasks[piece], segments_[piece / pieces_] / pieces_, true, [this, host] {
          const auto segment = states_[host].summed++ / pieces_;
          go_round(host);
          if (segment < states_[host].started) ring(host, segment).go_on(host);
        });
      } else if (state.handing < count() * pieces_ && state.handing / pieces_ < state.started &&
                 state.handing % pieces_ <
                     ring(host, state.handing / pieces_).complete(host) * pieces_ / members()) {
        const auto piece = state.handing++;
        rank.spread(tasks[count() * pieces_ + piece], segments_[piece / pieces_] / pieces_ / ranks_,
                    [this, host] {
                      if (++states_[host].handed == count() * pieces_) last_(host);
                    });
      } else {
        return;
      }
    }
  }
  Ring& ring(std::uint32_t host, std::uint32_t segment) {
    return *rings_[segment][host % ranks_ * turns_ / ranks_];
  }
  std::uint32_t there(std::uint32_t host, std::uint32_t segment) {
    const auto pieces = states_[host].summed - segment * pieces_;  // the ring begins with the first one
    return std::min(pieces, pieces_) * members() / pieces_;
  }
  void go_round(std::uint32_t host) {
    State& state = states_[host];
    while (state.started == state.round && state.started * pieces_ < state.summed) {
      const auto& rings = rings_[state.started++];
      state.turns = single(host) ? turns_ : 1;
      if (single(host))
        for (const auto& ring : rings) ring->start(host);
      else
        rings[host % ranks_ * turns_ / ranks_]->start(host);
    }
  }
  void came_round(std::uint32_t host) {
    State& state = states_[host];
    if (--state.turns > 0) return;
    if (++state.round == count() && single(host)) return last_(host);
    in_rack(host);
    go_round(host);
  }

  Plane& plane_;
  const std::uint32_t ina_, ranks_;
  std::uint32_t turns_ = 1, pieces_ = 1;
  std::vector<std::uint64_t> segments_;
  std::vector<State> states_;                              // by host
  std::vector<std::vector<std::shared_ptr<Ring>>> rings_;  // by segment and turn
  std::vector<std::vector<std::uint32_t>> rack_tasks_;     // by rack: sums of all segments, then handings out
  Done last_;
};

// A call on each of several planes, all at once.
class Simulation {
 public:
  Simulation() {
    using namespace ns3;
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(1000));  // as on used connections
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 17));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 17));
    Config::SetDefault("ns3::TcpSocket::TcpNoDelay", BooleanValue(true));
    // No queue overflows, so that a time-out would be for a packet that waits in one.
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(10)));
  }
  ~Simulation() {
    ns3::Simulator::Destroy();  // before the planes, whose events it holds
    composed_.clear();
    planes_.clear();
  }

  void ring(const Fabric& fabric, std::uint64_t bytes, std::uint32_t parts) {
    auto& plane = add(fabric);
    begin(
        [&plane, bytes, parts, last = last(plane.size() * parts)] { begin_ring(plane, bytes, parts, last); });
  }
  void hierarchical(const Fabric& fabric, std::uint64_t bytes) {
    auto& plane = add(fabric);
    begin([&plane, bytes, last = last(plane.size())] { begin_hierarchical(plane, bytes, last); });
  }
  void tree(const Fabric& fabric, std::uint64_t bytes) {
    auto& plane = add(fabric);
    begin([&plane, bytes, last = last(plane.size())] { begin_tree(plane, bytes, last); });
  }
  void composed(const Fabric& fabric, std::uint32_t ina, std::uint64_t bytes, std::uint64_t message) {
    auto& plane = add(fabric);
    auto& call = *composed_.emplace_back(std::make_unique<ComposedCall>(plane, ina, bytes, message));
    begin([&call, last = last(plane.size())] { call.begin(last); });
  }

  // Runs until all hosts have their results; returns that time.
  double run() {
    ns3::Simulator::Run();
    const auto dropped = std::accumulate(planes_.begin(), planes_.end(), std::uint64_t{0},
                                         [](auto sum, const auto& plane) { return sum + plane->dropped; });
    if (dropped > 0)
      throw std::runtime_error(std::to_string(dropped) + " packets were dropped: a queue is too short");
    if (busy_ > 0) throw std::runtime_error("not all hosts have their results, and nothing is on its way");
    return ns3::Simulator::Now().GetSeconds();
  }
  std::uint64_t events() const { return ns3::Simulator::GetEventCount(); }

 private:
  Plane& add(const Fabric& fabric) { return *planes_.emplace_back(std::make_unique<Plane>(fabric)); }
  void begin(std::function<void()> call) {
    ++busy_;
    ns3::Simulator::ScheduleNow(std::move(call));
  }
  Done last(std::uint32_t hosts) {
    return last_of(hosts, [this] {
      if (--busy_ == 0) ns3::Simulator::Stop();
    });
  }

  std::vector<std::unique_ptr<Plane>> planes_;
  std::vector<std::unique_ptr<ComposedCall>> composed_;
  std::size_t busy_ = 0;
};

}  // namespace railweave_simulation
