// SPDX-License-Identifier: Apache-2.0
// An attacker between two ranks who knows the keys. The input chooses the fate of datagrams (delivered, lost,
// doubled, spoilt, made up), the actions of agents, and the passing of time. In every case, a machine tells
// its agent only events that the agent can follow.
#include <array>
#include <deque>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "fuzz/script.hpp"
#include "recovery/recovery.hpp"

namespace {

using namespace railweave;
using namespace railweave::recovery;

constexpr int kRanks = 2;
constexpr std::size_t kRails = 2;
constexpr std::size_t kMostSent = 1000;  // by one machine in one turn
constexpr std::size_t kMostKept = 64;
constexpr std::size_t kNumberAt = 1;  // of a datagram's sequence number

/// One rank: its machine, and the guarantees for its agent.
struct Host {
  explicit Host(int rank) : machine({.rank = rank, .world_size = kRanks, .rails = kRails, .secret = {}}, 0) {}

  void poll() {
    while (auto event = machine.poll()) {
      require(!lost);
      std::visit([this](auto& each) { take(each); }, *event);
    }
  }
  void take(const Prepare& each) {
    require(each.epoch == epoch + 1 && each.alive != 0);
    require(!prepare || each.attempt > prepare->attempt);
    prepare = each;
  }
  void take(const Commit& each) {
    require(prepare && each.epoch == epoch + 1 && each.alive == prepare->alive);
    require(each.main.size() == kRails && each.repair.size() == kRails);
    epoch = each.epoch;
    prepare.reset();
  }
  void take(const Restart& each) {
    require(each.rail < kRails && each.incarnation > incarnations[each.rail]);
    require(each.bases.size() <= kMaxTrees);
    incarnations[each.rail] = each.incarnation;
  }
  void take(const Halt& each) { require(each.rail < kRails && each.incarnation == incarnations[each.rail]); }
  void take(const PeerLost& each) {
    require(each.rank >= 0 && each.rank < kRanks);
    lost = true;
  }
  void take(const AllCompleted& each) { require(std::exchange(all_completed, each.op) < each.op); }
  void take(const AllSubmitted& each) { require(std::exchange(all_submitted, each.op) < each.op); }
  void take(const RailChanged& each) { require(each.rail < kRails); }

  Recovery machine;
  std::uint32_t epoch = 0;
  std::array<std::uint32_t, kRails> incarnations{};
  std::optional<Prepare> prepare;
  std::uint32_t all_completed = 0;
  std::uint32_t all_submitted = 0;
  bool lost = false;
};

struct Play {
  explicit Play(Script script) : script(script) {}

  struct Datagram {
    std::size_t rail;
    int to;
    std::vector<std::byte> bytes;
  };

  void turn(int rank) {
    Host& host = hosts[rank];
    if (host.machine.deadline() <= now) host.machine.expire(now);
    host.poll();
    std::size_t sent = 0;
    while (const auto out = host.machine.transmit(now)) {
      require(++sent < kMostSent && out->rank == 1 - rank && out->rail < kRails);
      under_way.push_back({out->rail, out->rank, {out->bytes.begin(), out->bytes.end()}});
    }
    while (under_way.size() > kMostKept) under_way.pop_front();
    require(host.machine.alive() != 0 && host.machine.epoch() == host.epoch);
  }

  void deliver(bool spoil, bool keep) {
    if (under_way.empty()) return;
    const std::size_t at = spoil ? script.next() % under_way.size() : 0;
    Datagram datagram = under_way[at];
    if (!keep) under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(at));
    for (int edits = spoil ? script.next() % 8 : 0; edits > 0; --edits) {
      const std::size_t place = script.next();
      datagram.bytes[place % datagram.bytes.size()] = std::byte{script.next()};
    }
    if (spoil && script.next() % 8 == 0) datagram.bytes.resize(script.next() % (datagram.bytes.size() + 1));
    renew(datagram);
    hosts[datagram.to].machine.receive(datagram.rail, 1 - datagram.to, datagram.bytes, now);
    turn(datagram.to);
  }

  // Renews number and code. Otherwise the machine would refuse nearly all spoilt, late or doubled datagrams.
  void renew(Datagram& datagram) {
    if (script.next() % 16 == 0 || datagram.bytes.size() < kNumberAt + sizeof sequence + sizeof(Mac)) return;
    store_be(datagram.bytes.data() + kNumberAt, ++sequence);
    datagram.bytes.resize(datagram.bytes.size() - sizeof(Mac));
    append_code(datagram.bytes, key_of({}, datagram.to));
  }

  void raw() {
    std::vector<std::byte> bytes(script.next() % 64);
    for (auto& byte : bytes) byte = std::byte{script.next()};
    hosts[script.next() % 2].machine.receive(script.next() % kRails, 0, bytes, now);
  }

  void act(int rank) {
    Host& host = hosts[rank];
    const std::size_t rail = script.next() % kRails;
    switch (script.next() % 8) {
      case 0:
        host.machine.suspect(rail, "broken", now);
        break;
      case 1:
        host.machine.set_obstacle(rail, script.next() % 2 ? "obstacle" : "", now);
        break;
      case 2:
        host.machine.completed(script.next());
        host.machine.submitted(script.next());
        break;
      case 3:
        host.machine.halted(rail, std::vector<std::uint64_t>(script.next() % 4, script.next()), now);
        break;
      case 4:
        host.machine.restarted(rail, host.incarnations[rail], script.next() % 2 != 0, now);
        break;
      case 5:
        if (!under_way.empty()) {
          const Datagram& quoted = under_way[script.next() % under_way.size()];
          host.machine.unreachable(quoted.rail, quoted.to, quoted.bytes, now);
        }
        break;
      case 6:
        if (script.next() == 0) host.machine.leave(now);
        break;
      default:
        if (host.prepare)
          host.machine.prepared(*host.prepare, {.submitted = script.next(), .main = {1, 2}, .repair = {0, 0}},
                                now);
    }
    turn(rank);
  }

  void step() {
    switch (script.next() % 8) {
      case 0:
        now += script.next() * kMillisecond;
        turn(0);
        return turn(1);
      case 1:
        return raw();
      case 2:
        return deliver(/*spoil=*/true, /*keep=*/true);
      case 3:
        return deliver(/*spoil=*/false, /*keep=*/true);
      case 4:
        return act(script.next() % 2);
      case 5:
        if (!under_way.empty()) under_way.pop_front();
        return;
      default:
        return deliver(/*spoil=*/false, /*keep=*/false);
    }
  }

  Script script;
  std::array<Host, kRanks> hosts{Host(0), Host(1)};
  std::deque<Datagram> under_way;
  std::uint64_t sequence = 0;
  Time now = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Play play(Script(data, size));
  while (!play.script.ended()) play.step();
  return 0;
}
