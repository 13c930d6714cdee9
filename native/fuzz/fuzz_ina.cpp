// SPDX-License-Identifier: Apache-2.0
// A hostile switch. The input chooses the calls, the answers of the switch, the passing of time, and restarts
// or moves of the group. An answer is the right result, a spoilt result, raw bytes, or nothing.
// Packets may be sealed. Then the rank is alone, so that its own packet is the result.
#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <vector>

#include "fuzz/script.hpp"
#include "ina/endpoint.hpp"

namespace {

using namespace railweave;
using namespace railweave::ina;

constexpr std::uint32_t kDataLanes = 4;
constexpr std::size_t kMaxElements = 200;

struct Play {
  explicit Play(Script given)
      : script(given),
        sealed(script.next() % 2 == 0),
        world_size(sealed ? 1 : 2),
        lanes(kDataLanes + (sealed ? kSealLanes : 0)),
        endpoint({.group = 3,
                  .child = 1,
                  .slots = 4,
                  .lanes = lanes,
                  .world_size = world_size,
                  .seal = sealed ? std::optional<SealOptions>(SealOptions{{}, 0, 0}) : std::nullopt}) {
    std::uint32_t bits = 0x3f800000;
    for (auto& word : values) word = bits = bits * 1664525 + script.next() * 0x01000193u + 1013904223;
  }

  void start() {
    CallDescription call{.op_index = calls++,
                         .collective = Collective::kAllReduce,
                         .dtype = static_cast<DType>(script.next() % 8),
                         .op = static_cast<ReduceOp>(script.next() % 4),
                         .root = 0,
                         .count = kMaxElements};
    const std::size_t count = std::size_t{1} + script.next() % kMaxElements;
    call.collective = static_cast<Collective>(script.next() % 4);
    const bool scatters = call.collective == Collective::kReduceScatter;
    const bool gathers = call.collective == Collective::kAllGather;
    if (!carries(call)) call.dtype = static_cast<DType>(static_cast<int>(call.dtype) % 4);
    auto* const memory = reinterpret_cast<std::byte*>(values.data());
    const std::size_t own = kMaxElements * item_size(call.dtype);  // this rank's shard
    endpoint.start({.id = call.op_index,
                    .call = call,
                    .input = memory + (gathers ? own : 0),
                    .output = memory + (scatters ? own : 0),
                    .count = count,
                    .stride = is_sharded(call.collective) ? kMaxElements : 0,
                    .rank = world_size - 1,
                    .world_size = world_size});
  }

  void transmit() {
    for (Bytes packet; !(packet = endpoint.transmit(now)).empty();)
      sent.emplace_back(packet.begin(), packet.end());
    if (sent.size() > 64) sent.erase(sent.begin(), sent.end() - 64);
  }

  /// Returns a recent packet as a result, perhaps with changed bytes or without its end. A contribution
  /// without lanes gets lanes. Another contribution may lose its lanes, as if the other rank owned the chunk.
  void answer(bool spoil) {
    if (sent.empty()) return;
    std::vector<std::byte> packet = sent[sent.size() - 1 - script.next() % sent.size()];
    if ((packet[0] & std::byte{0xf}) == std::byte{static_cast<int>(Kind::kContribute)}) {
      packet[0] = std::byte{kVersion << 4 | static_cast<int>(Kind::kResult)};
      const bool bare = packet.size() == kHeaderBytes;
      if (bare || script.next() % 2 == 0) {
        packet[5] |= std::byte{flag::kOwner};
        packet.resize(bare ? packet_bytes(lanes) : kHeaderBytes);
      }
    }
    for (int edits = spoil ? script.next() % 8 : 0; edits > 0; --edits) {
      const std::size_t at = script.next() % packet.size();
      packet[at] = std::byte{script.next()};
    }
    if (spoil && script.next() % 8 == 0) packet.resize(script.next() % (packet.size() + 1));
    endpoint.receive(packet, now);
  }

  void raw() {
    std::vector<std::byte> packet(script.next() % 64);
    for (auto& byte : packet) byte = std::byte{script.next()};
    endpoint.receive(packet, now);
  }

  /// Gives up the chunks of all packets sent so far. Other ranks may have been ahead.
  void halt_and_restart() {
    endpoint.halt();
    if (script.next() % 2 == 0) answer(/*spoil=*/false);
    endpoint.restart(endpoint.next_chunk() + script.next() % 64, now);
  }

  /// Other ranks may be up to two windows behind. The endpoint throws if it cannot go back that far.
  void move() {
    const std::uint64_t position = endpoint.pause(now);
    if (script.next() % 2 == 0) halt_and_restart();
    const std::uint8_t group = script.next();
    const auto slots = std::uint32_t{1} << script.next() % 4;
    try {
      endpoint.resume({.group = group, .child = 1, .slots = slots, .lanes = lanes},
                      position - std::min<std::uint64_t>(position, script.next() % 16), now);
    } catch (const std::invalid_argument&) {
      endpoint.resume({.group = group, .child = 1, .slots = slots, .lanes = lanes}, position, now);
    }
  }

  void step() {
    switch (script.next() % 10) {
      case 8:
        return halt_and_restart();
      case 9:
        return move();
      case 0:
        return start();
      case 1:
        now += script.next() * kMillisecond;
        return endpoint.expire(now);
      case 2:
        return raw();
      case 3:
      case 4:
        return answer(/*spoil=*/true);
      default:
        transmit();
        return answer(/*spoil=*/false);
    }
  }

  Script script;
  bool sealed;
  int world_size;
  std::uint32_t lanes;
  Endpoint endpoint;
  std::array<std::uint32_t, 4 * kMaxElements> values;  // two shards of eight bytes per element
  std::vector<std::vector<std::byte>> sent;
  std::uint32_t calls = 0;
  Time now = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Play play(Script(data, size));
  play.start();
  while (!play.script.ended()) {
    play.step();
    while (play.endpoint.poll()) {
    }
  }
  const EndpointStats& stats = play.endpoint.stats();
  require(stats.results <= stats.contributions);
  return 0;
}
