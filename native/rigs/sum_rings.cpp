// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.sum_rings: all-reduces of a netreduce rail in virtual time, for tests. The caller is the
// switch.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include "bindings/values.hpp"
#include "rails/soft_connection.hpp"
#include "rails/sum_all_reduce.hpp"
#include "rails/sum_ring.hpp"
#include "rigs/network_simulation.hpp"
#include "rigs/rig.hpp"
#include "rigs/simulated_rank.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

constexpr Time kMostTime = 1000 * kSecond;  // a longer run counts as hung
constexpr Duration kLink = 20 * kMicrosecond;

/// The switch: it turns a transport packet of a rank into (rank, packet) pairs. `first` is the number of the
/// incarnation's first packet.
using Exchange = std::function<std::vector<std::pair<int, nb::bytes>>(
    int rank, const nb::bytes& transport, std::uint32_t incarnation, std::uint64_t first)>;

struct World {
  std::size_t path_mtu;
  std::size_t window_packets;
  std::int64_t in_flight;  // packets, at most
  double loss;
  double duplicate;
  double overtaken;  // packets that wait longer than others
  Duration late;     // the longest delay of such packets and of ranks
  int dies;          // this rank, at some time; -1: none
  bool ends;         // a queue pair fails in each incarnation but the last
  bool impatient;    // as a device's
  std::vector<std::uint32_t> first_psns;
};

/// Queue pair numbers of a rank's connection to the next rank. The rank gets the receiver's number with
/// kAlias.
std::uint32_t out_number(int rank) { return 0x4000u + static_cast<std::uint32_t>(rank); }
std::uint32_t into_number(int sender) { return 0x100u + static_cast<std::uint32_t>(sender); }
constexpr std::uint32_t kAlias = 0x800000;

/// Violations.
using Complaints = std::set<std::string>;

/// A rank of a netreduce rail. Messages go over the simulated network, sums over queue pairs.
class RingRank final : public SimulatedRank, private TransportListener {
 public:
  RingRank(SimulatedNetwork& network, const World& world, int rank, int ranks, Complaints& complaints)
      : SimulatedRank(rank, ranks, network.transport(rank), {},
                      [this](Transport& transport, const Slice& slice) -> std::unique_ptr<Algorithm> {
                        if (!ring_ || halted_ || !sums_in_switch(slice)) return nullptr;
                        ++summed_;
                        return std::make_unique<SumAllReduce>(transport, *ring_, slice, AlgorithmOptions{});
                      }),
        world_(world),
        complaints_(complaints),
        rank_(rank),
        next_((rank + 1) % ranks),
        before_((rank + ranks - 1) % ranks) {
    join(0);
  }

  roce::QueuePair* queue_pair(std::uint32_t number) {
    if (number == out_number(rank_)) return out_.get();
    return number == into_number(before_) ? into_.get() : nullptr;
  }
  roce::QueuePair& out() { return *out_; }
  roce::QueuePair& into() { return *into_; }
  std::uint64_t summed() const { return summed_; }
  bool sleeping = false;

  /// A queue pair fails, while the rail runs.
  void end(bool out, Time now) {
    if (halted_ || failure_) return;
    (out ? *out_ : *into_).abort();
    drain(now);
    if (!failure_) complaints_.insert("a queue pair failed, and the rail did not");
  }

  /// As RdmaTransport does once the queue pairs have moved; false if there was nothing.
  bool drain(Time now) {
    if (halted_ || !ring_->drain(now)) return false;
    rail_.moved(now);
    return true;
  }

  /// The outputs of what is not complete are the caller's again.
  void halt(Time now) {
    halted_ = true;
    const auto [address, rkey] = ring_->inbox();
    ring_->halt();
    if (memory_.find(rkey, address, 1, into_number(before_)).data() != nullptr)
      complaints_.insert("a halted ring may be written");
    SimulatedRank::halt(now);
  }
  std::uint64_t next_packet() const { return ring_->next_packet(); }
  void restart(std::uint32_t incarnation, std::uint64_t next_packet, Time now) {
    failure_.reset();
    join(next_packet);
    SimulatedRank::restart(incarnation, now);
  }
  void lose(int rank, Time now) {
    const std::string message = "rank " + std::to_string(rank) + " is lost";
    rail_failed({.kind = FailureKind::kPeerLost, .rank = rank, .message = message}, now);
    halt(now);
    lost_ = true;
  }
  bool lost() const { return lost_; }
  void rail_failed(const Failure& failure, Time now) override {
    SimulatedRank::rail_failed(failure, now);
    ring_->halt();
  }

 private:
  void sent(int, Time) override {}
  void received(int, Time) override {}
  std::optional<MessageLabel> own_label(const SliceKey& key) const override {
    return SimulatedRank::own_label(key);
  }
  /// Of this rank's connections; others notice theirs.
  void failed(const Failure& failure, Time) override {
    failure_ = failure.message;
    rail_.abort();
  }

  void join(std::uint64_t next_packet) {
    ring_.reset();  // before its queue pairs
    const auto psn = [&](int sender) {
      const std::uint32_t first = world_.first_psns[static_cast<std::size_t>(sender)];
      return static_cast<std::uint32_t>((first + next_packet) & roce::kPsnMask);
    };
    roce::QueuePairOptions options;
    options.path_mtu = world_.path_mtu;
    options.window = world_.in_flight;
    options.min_window = std::min(options.min_window, options.window);
    options.retries = std::numeric_limits<int>::max();
    options.min_timeout = 20 * kMillisecond;
    options.summed = true;
    options.qpn = out_number(rank_);
    options.peer_qpn = into_number(rank_) ^ kAlias;
    options.send_psn = psn(rank_);
    out_ = std::make_unique<roce::QueuePair>(options, memory_);
    options.qpn = into_number(before_);
    options.peer_qpn = out_number(before_);
    options.send_psn = 0;
    options.receive_psn = psn(before_);
    into_ = std::make_unique<roce::QueuePair>(options, memory_);
    TransportListener& listener = *this;
    soft_out_ = std::make_unique<SoftConnection>(*out_, memory_);
    soft_into_ = std::make_unique<SoftConnection>(*into_, memory_);
    ring_ = std::make_unique<SumRing>(SumRingOptions{.path_mtu = world_.path_mtu,
                                                     .window_packets = world_.window_packets,
                                                     .next_packet = next_packet,
                                                     .next_rank = next_,
                                                     .rank_before = before_,
                                                     .next_name = "the next rank",
                                                     .name_before = "the rank before",
                                                     .impatient = world_.impatient},
                                      *soft_out_, *soft_into_, listener);
    halted_ = false;
  }

  const World& world_;
  Complaints& complaints_;
  const int rank_, next_, before_;
  roce::MemoryRegions memory_;
  std::unique_ptr<roce::QueuePair> out_, into_;
  std::unique_ptr<RdmaConnection> soft_out_, soft_into_;
  std::unique_ptr<SumRing> ring_;
  std::uint64_t summed_ = 0;
  bool halted_ = false, lost_ = false;
};

/// Calls by incarnation and rank; all but the last are halted, rank by rank, at some time.
class Simulation {
 public:
  using Incarnations = std::vector<std::vector<std::vector<Call>>>;

  Simulation(const Incarnations& calls, const World& world, const Exchange& exchange, std::uint64_t seed)
      : calls_(calls),
        world_(world),
        exchange_(exchange),
        ranks_(static_cast<int>(calls.at(0).size())),
        random_(seed),
        network_(ranks_, seed) {
    network_.lose_acknowledgements();
    for (int rank = 0; rank < ranks_; ++rank)
      hosts_.push_back(std::make_unique<RingRank>(network_, world_, rank, ranks_, complaints_));
  }

  auto run() {
    begin();
    while (network_.step(kMostTime)) pump();
    std::vector<std::pair<std::vector<std::uint32_t>, std::optional<std::string>>> outcomes;
    std::uint64_t summed = 0;
    for (const auto& host : hosts_) {
      outcomes.push_back(host->outcome());
      summed += host->summed();
    }
    return std::tuple(outcomes, summed, complaints_);
  }

 private:
  RingRank& host(int rank) { return *hosts_[static_cast<std::size_t>(rank)]; }
  bool chance(double probability) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
  }
  Duration within(Duration most) {
    return static_cast<Duration>(random_() % static_cast<std::uint64_t>(most));
  }
  void soon(Duration most, std::function<void()> action) { network_.after(within(most), std::move(action)); }

  /// Over a link.
  void carry(const std::function<void()>& action) {
    for (int copies = chance(world_.duplicate) ? 2 : 1; copies > 0; --copies)
      if (!chance(world_.loss))
        network_.after(kLink + (chance(world_.overtaken) ? within(world_.late) : 0), action);
  }

  void pump() {
    const Time now = network_.now();
    Time wake = kNever;
    for (int rank = 0; rank < ranks_; ++rank) {
      RingRank& of = host(rank);
      if (of.sleeping) continue;
      do {
        for (roce::QueuePair* pair : {&of.out(), &of.into()}) {
          if (pair->deadline() <= now) pair->expire(now);
          send(rank, *pair);
          wake = std::min(wake, pair->deadline());
        }
      } while (of.drain(now));
    }
    if (wake >= wake_) return;
    wake_ = wake;
    network_.after(wake - now, [this] { wake_ = kNever; });
  }

  void send(int rank, roce::QueuePair& pair) {
    std::vector<std::byte> buffer(world_.path_mtu + roce::kMaxOverhead);
    while (const std::size_t size = pair.transmit(buffer, network_.now())) {
      if (world_.impatient && begun_ < ranks_ && &pair == &host(rank).out())
        complaints_.insert("a device has to wait for a rank that is late");
      const nb::bytes packet(reinterpret_cast<const char*>(buffer.data()), size);
      carry([this, rank, packet] {
        for (const auto& [to, made] : exchange_(rank, packet, incarnation_, next_packet_))
          carry([this, to = to, made = made] { arrive(to, made); });
      });
    }
  }

  void arrive(int rank, const nb::bytes& transport) {
    const Bytes packet(reinterpret_cast<const std::byte*>(transport.c_str()), transport.size());
    const auto parsed = roce::parse(packet);
    roce::QueuePair* pair = parsed ? host(rank).queue_pair(parsed->qpn) : nullptr;
    if (pair != nullptr) pair->receive(*parsed, network_.now());
    RingRank& of = host(rank);
    if (of.sleeping || !chance(0.05)) return;
    of.sleeping = true;  // its process finds all packets of this time together
    soon(world_.late, [&of] { of.sleeping = false; });
  }

  void begin() {
    halted_ = begun_ = 0;
    next_packet_ = 0;
    for (const auto& each : hosts_) next_packet_ = std::max(next_packet_, each->next_packet());
    for (int rank = 0; rank < ranks_; ++rank) soon(world_.late, [this, rank] { begin(rank); });
    const int any = static_cast<int>(random_() % static_cast<std::uint64_t>(ranks_));
    if (incarnation_ + 1 < calls_.size()) {
      if (world_.ends)
        soon(4 * world_.late, [this, any, out = chance(0.5), incarnation = incarnation_] {
          if (incarnation == incarnation_) host(any).end(out, network_.now());
        });
    } else if (world_.dies >= 0) {
      soon(4 * world_.late, [this] { die(); });
    }
  }

  void begin(int rank) {
    if (host(rank).lost() || (calls_.size() == 1 && host(rank).outcome().second)) return;
    if (incarnation_ > 0) host(rank).restart(incarnation_, next_packet_, network_.now());
    ++begun_;
    host(rank).submit(calls_[incarnation_][static_cast<std::size_t>(rank)], network_.now());
    if (incarnation_ + 1 == calls_.size()) return;
    soon(4 * world_.late, [this, rank] {
      host(rank).halt(network_.now());
      if (++halted_ < ranks_) return;
      ++incarnation_;
      begin();
    });
  }

  /// The rank says nothing any more; the others notice it one after the other.
  void die() {
    host(world_.dies).lose(world_.dies, network_.now());
    for (const auto& each : hosts_)
      soon(world_.late, [this, &each] { each->lose(world_.dies, network_.now()); });
  }

  const Incarnations& calls_;
  const World world_;
  const Exchange& exchange_;
  const int ranks_;
  std::mt19937_64 random_;
  SimulatedNetwork network_;
  std::vector<std::unique_ptr<RingRank>> hosts_;
  std::uint32_t incarnation_ = 0;
  std::uint64_t next_packet_ = 0;
  int halted_ = 0, begun_ = 0;  // ranks, in this incarnation
  Complaints complaints_;
  Time wake_ = kNever;
};

}  // namespace

void bind_sum_rings(nb::module_& m) {
  nb::module_ sub = rig_submodule(m, "sum_rings", "Allreduces that a switch adds up, for tests");
  sub.attr("ALIAS") = kAlias;
  sub.def("out_number", &out_number, "rank"_a, "The queue pair from which a rank WRITEs to the next");
  sub.def("into_number", &into_number, "sender"_a, "The next rank's end; the sender knows it by ALIAS more");
  sub.def(
      "simulate",
      [](const Simulation::Incarnations& calls, const Exchange& exchange, std::uint64_t seed,
         std::vector<std::uint32_t> first_psns, std::size_t path_mtu, std::size_t window_packets,
         std::int64_t in_flight, double loss, double duplicate, double overtaken, double late_s, int dies,
         bool ends, bool impatient) {
        const World world{.path_mtu = path_mtu,
                          .window_packets = window_packets,
                          .in_flight = in_flight,
                          .loss = loss,
                          .duplicate = duplicate,
                          .overtaken = overtaken,
                          .late = nanoseconds(late_s),
                          .dies = dies,
                          .ends = ends,
                          .impatient = impatient,
                          .first_psns = std::move(first_psns)};
        return Simulation(calls, world, exchange, seed).run();
      },
      "calls"_a, "exchange"_a, "seed"_a, "first_psns"_a, "path_mtu"_a = 256, "window_packets"_a = 16,
      "in_flight"_a = 64, "loss"_a = 0.0, "duplicate"_a = 0.0, "overtaken"_a = 0.0, "late_s"_a = 0.001,
      "dies"_a = -1, "ends"_a = false, "impatient"_a = false,
      "Run calls, by incarnation and rank. `exchange(rank, transport, incarnation, first)` is the switch: "
      "transport packets for ranks. All incarnations but the last are halted at random times; if `ends`, a "
      "queue pair fails in each. Per rank: the op indices completed, in order, and the last failure's "
      "message "
      "or None; then how many slices the switch was to add, and what went wrong beside them");
}

}  // namespace railweave
