// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.composed: allreduces of racks and single ranks in virtual time, for tests.
#include "ina/composed.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <random>
#include <tuple>

#include "bindings/values.hpp"
#include "rigs/rack_simulation.hpp"
#include "rigs/rig.hpp"
#include "rigs/simulated_rank.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

constexpr Time kMostTime = 1000 * kSecond;  // a longer run counts as hung; lone slots and loss take long

struct World {
  std::vector<std::vector<int>> members;
  std::uint32_t lanes;
  std::uint32_t slots;
  std::size_t message_bytes;
  std::size_t piece_bytes;
  std::size_t narrow_bytes;
  double loss;
  double duplicate;
  Duration late;  // greatest delay of a rank's start
  int dies;       // rank that dies at some time; -1: none
};

/// A rank of an in-network rail with a ring, over a simulated network.
class RackRank final : public SimulatedRank {
 public:
  RackRank(SimulatedNetwork& network, const World& world, int rank, int ranks)
      : SimulatedRank(rank, ranks, network.transport(rank), {},
                      [this](Transport& transport, const Slice& slice) {
                        auto made = std::make_unique<ina::ComposedAllReduce>(transport, ring_, slice,
                                                                             options_, counts_);
                        composed_ = made.get();
                        return made;
                      }),
        ring_(world.members, rank, ranks),
        options_{.lanes = world.lanes,
                 .message_bytes = world.message_bytes,
                 .piece_bytes = world.piece_bytes,
                 .narrow_bytes = world.narrow_bytes,
                 .start_in_rack = {}} {}

  const MemberRing& ring() const { return ring_; }
  void join(ina::SimulatedRack& rack) {
    rack_ = &rack;
    options_.start_in_rack = [this](const Slice& slice, Time) { rack_->start(ring_.place(), slice); };
  }
  void rack_done(Time now) {
    composed_->rack_done();
    rail_.advance(now);
  }

  void halt(Time now) {
    if (rack_ != nullptr) rack_->halt(ring_.place());
    SimulatedRank::halt(now);
  }
  void lose(int rank, Time now) {
    const std::string message = "rank " + std::to_string(rank) + " is lost";
    rail_failed({.kind = FailureKind::kPeerLost, .rank = rank, .message = message}, now);
  }

  std::tuple<std::uint64_t, std::uint64_t, Time> counts() const {
    return {counts_.rings, counts_.messages, done_at_};
  }

  void rail_failed(const Failure& failure, Time now) override {
    if (!failure_ && rack_ != nullptr) rack_->abort(ring_.place());
    SimulatedRank::rail_failed(failure, now);
  }

 private:
  const MemberRing ring_;
  ina::ComposedOptions options_;
  ina::RingCounts counts_;
  ina::ComposedAllReduce* composed_ = nullptr;
  ina::SimulatedRack* rack_ = nullptr;
};

/// Calls by incarnation and rank. Every incarnation except the last is halted at some time, rank by rank.
class Simulation {
 public:
  using Incarnations = std::vector<std::vector<std::vector<Call>>>;

  Simulation(const Incarnations& calls, const World& world, std::uint64_t seed)
      : calls_(calls),
        world_(world),
        ranks_(static_cast<int>(calls.at(0).size())),
        random_(seed),
        network_(ranks_, seed) {
    for (int rank = 0; rank < ranks_; ++rank) {
      hosts_.push_back(std::make_unique<RackRank>(network_, world_, rank, ranks_));
      network_.add_peers(rank, hosts_.back()->ring().peers());
    }
    for (const std::vector<int>& member : world_.members) {
      if (member.size() < 2) continue;
      const ina::RackOptions options{.lanes = world_.lanes,
                                     .slots = world_.slots,
                                     .ranks = static_cast<int>(member.size()),
                                     .loss = world_.loss,
                                     .duplicate = world_.duplicate};
      auto done = [this, member](int place) { host(member, place).rack_done(network_.now()); };
      auto failed = [this, member](int place, const Failure& failure) {
        host(member, place).rail_failed(failure, network_.now());
      };
      racks_.push_back(std::make_unique<ina::SimulatedRack>(network_, options, random_(), done, failed));
      for (const int rank : member) hosts_[static_cast<std::size_t>(rank)]->join(*racks_.back());
    }
  }

  auto run() {
    begin();
    network_.run(kMostTime);
    std::vector<std::pair<std::vector<std::uint32_t>, std::optional<std::string>>> outcomes;
    std::vector<std::tuple<std::uint64_t, std::uint64_t, Time>> counts;
    for (const auto& host : hosts_) {
      outcomes.push_back(host->outcome());
      counts.push_back(host->counts());
    }
    return std::pair(outcomes, counts);
  }

 private:
  RackRank& host(const std::vector<int>& member, int place) {
    return *hosts_[static_cast<std::size_t>(member[static_cast<std::size_t>(place)])];
  }
  void soon(Duration within, std::function<void()> action) {
    network_.after(static_cast<Duration>(random_() % static_cast<std::uint64_t>(within)), std::move(action));
  }

  void begin() {
    halted_ = 0;
    if (incarnation_ > 0)
      for (const auto& rack : racks_) rack->restart();
    for (int rank = 0; rank < ranks_; ++rank) soon(world_.late, [this, rank] { begin(rank); });
    if (world_.dies >= 0 && incarnation_ + 1 == calls_.size()) soon(4 * world_.late, [this] { die(); });
  }

  /// Silences the rank. The other ranks notice the silence at different times.
  void die() {
    hosts_[static_cast<std::size_t>(world_.dies)]->lose(world_.dies, network_.now());
    for (const auto& host : hosts_)
      soon(world_.late, [this, &host] { host->lose(world_.dies, network_.now()); });
  }

  void begin(int rank) {
    RackRank& host = *hosts_[static_cast<std::size_t>(rank)];
    if (host.outcome().second) return;
    if (incarnation_ > 0) host.restart(incarnation_, network_.now());
    host.submit(calls_[incarnation_][static_cast<std::size_t>(rank)], network_.now());
    if (incarnation_ + 1 == calls_.size()) return;
    soon(4 * world_.late, [this, &host] {
      host.halt(network_.now());
      if (++halted_ < ranks_) return;
      ++incarnation_;
      begin();
    });
  }

  const Incarnations& calls_;
  const World world_;
  const int ranks_;
  std::mt19937_64 random_;
  SimulatedNetwork network_;
  std::vector<std::unique_ptr<RackRank>> hosts_;
  std::vector<std::unique_ptr<ina::SimulatedRack>> racks_;
  std::uint32_t incarnation_ = 0;
  int halted_ = 0;
};

}  // namespace

void bind_composed(nb::module_& m) {
  nb::module_ sub = rig_submodule(m, "composed", "Allreduces of racks and single ranks, for tests");
  sub.attr("MOST_COLUMNS") = MemberRing::kMostColumns;
  sub.def("columns_of", &MemberRing::columns_of, "members"_a,
          "In how many columns these members share a tensor; 0: in none");
  sub.def(
      "simulate",
      [](const Simulation::Incarnations& calls, std::vector<std::vector<int>> members, std::uint64_t seed,
         std::uint32_t lanes, std::uint32_t slots, std::size_t message_bytes, std::size_t piece_bytes,
         std::size_t narrow_bytes, double loss, double duplicate, double late_s, int dies) {
        const World world{.members = std::move(members),
                          .lanes = lanes,
                          .slots = slots,
                          .message_bytes = message_bytes,
                          .piece_bytes = piece_bytes,
                          .narrow_bytes = narrow_bytes,
                          .loss = loss,
                          .duplicate = duplicate,
                          .late = nanoseconds(late_s),
                          .dies = dies};
        return Simulation(calls, world, seed).run();
      },
      "calls"_a, "members"_a, "seed"_a, "lanes"_a = 8, "slots"_a = 4, "message_bytes"_a = 256,
      "piece_bytes"_a = 64, "narrow_bytes"_a = 20 * 1024, "loss"_a = 0.0, "duplicate"_a = 0.0,
      "late_s"_a = 0.001, "dies"_a = -1,
      "Run calls, by incarnation and rank, over simulated racks and a ring of `members`; all incarnations "
      "but "
      "the last are halted at random times. Per rank: the op indices completed, in order, and the failure's "
      "message or None; and per rank how many rings it was in, the messages that it sent in them, and the "
      "time "
      "in ns at which it completed its last call");
}

}  // namespace railweave
