// SPDX-License-Identifier: Apache-2.0
// Hostile peers and a hostile switch. The input chooses the tasks, the arriving packets, the passing of time,
// and moves or halts of the group. A packet is good, spoilt, raw bytes, or a packet of the machine itself.
// The memory around the outputs of slices must not change.
#include <algorithm>
#include <array>
#include <vector>

#include "fuzz/script.hpp"
#include "ina/packet.hpp"
#include "spread/spreader.hpp"

namespace {

using namespace railweave;
using namespace railweave::spread;

constexpr int kRanks = 3;
constexpr int kRank = 1;
constexpr std::size_t kCount = 600;  // bytes of a shard, at most
constexpr std::size_t kGuard = 64;   // bytes around the output
constexpr std::byte kUntouched{0xa5};
constexpr Keys kKeys{};  // the attacker knows them

/// The memory of one slice, in separate blocks, so that the sanitizer sees accesses out of bounds.
struct Memory {
  std::vector<std::byte> input = std::vector<std::byte>(kCount, std::byte{1});
  std::vector<std::byte> output = std::vector<std::byte>(kRanks * kCount + 2 * kGuard, kUntouched);

  bool guarded() const {
    const auto untouched = [](std::byte each) { return each == kUntouched; };
    return std::all_of(output.begin(), output.begin() + kGuard, untouched) &&
           std::all_of(output.end() - kGuard, output.end(), untouched);
  }
};

struct Play {
  explicit Play(Script script)
      : script(script),
        machine({.group = 3,
                 .child = kRank,
                 .rank = kRank,
                 .world_size = kRanks,
                 .rate_bps = script.next() % 2 * std::uint64_t{100'000'000},
                 .roots = 1 + script.next() % 4,
                 .keys = kKeys}) {}

  void start() {
    memory.emplace_back();
    const bool gathers = script.next() % 2;
    const CallDescription call{.op_index = 0,
                               .collective = gathers ? Collective::kAllGather : Collective::kBroadcast,
                               .dtype = DType::kUInt8,
                               .op = ReduceOp::kSum,
                               .root = static_cast<std::uint16_t>(gathers ? 0 : script.next() % kRanks),
                               .count = kCount};
    task += 1 + (script.next() % 4 == 0 ? std::uint64_t{1} << script.next() % 33 : 0);
    chunk_bytes = std::size_t{1} + script.next() % 16;
    machine.start(task,
                  {.id = memory.size() - 1,
                   .call = call,
                   .input = memory.back().input.data(),
                   .output = memory.back().output.data() + kGuard,
                   .count = (script.next() << 8 | script.next()) % (kCount + 1),
                   .stride = gathers ? kCount : 0,
                   .rank = kRank,
                   .world_size = kRanks},
                  chunk_bytes, script.next() % 4, now);
  }

  void transmit() {
    for (Packet packet; !(packet = machine.transmit(now)).bytes.empty();) {
      require(packet.to >= Packet::kTree && packet.to < kRanks && packet.to != kRank);
      sent.emplace_back(packet.bytes.begin(), packet.bytes.end());
    }
    if (sent.size() > 64) sent.erase(sent.begin(), sent.end() - 64);
  }

  /// Delivers a chunk or a fetch request that is right or nearly right.
  void packet(bool fetch) {
    std::vector<std::byte> bytes(ina::kHeaderBytes + (fetch ? 4 : chunk_bytes));
    for (std::size_t i = ina::kHeaderBytes; i < bytes.size(); ++i) bytes[i] = std::byte{script.next()};
    if (fetch) {
      bytes[ina::kHeaderBytes] = bytes[ina::kHeaderBytes + 2] = std::byte{0};
      bytes[ina::kHeaderBytes + 1] &= std::byte{3};
    }
    ina::encode({.kind = static_cast<std::uint8_t>(fetch ? ina::Kind::kFetch : ina::Kind::kSpread),
                 .group = 3,
                 .flags = static_cast<std::uint8_t>(script.next() & 1),
                 .slot = static_cast<std::uint16_t>(script.next() % (kRanks + 1)),
                 .round = script.next() % 128u,
                 .mark = static_cast<std::uint32_t>(task) - script.next() % 3},
                bytes.data());
    deliver(proven(bytes));
  }

  /// Appends a code in nearly all cases. Otherwise the machine would accept hardly any packet.
  std::vector<std::byte> proven(std::vector<std::byte> bytes) {
    if (script.next() % 16 == 0 || bytes.size() < ina::kHeaderBytes) return bytes;
    const ina::Header header = ina::decode(bytes.data());
    const auto behind = static_cast<std::int32_t>(static_cast<std::uint32_t>(task) - header.mark);
    const std::uint64_t number = task - static_cast<std::uint64_t>(std::int64_t{behind});
    const Bytes said = Bytes(bytes).subspan(ina::kHeaderBytes);
    if (header.kind == static_cast<std::uint8_t>(ina::Kind::kSpread)) {
      const Mac code = code_of(kKeys.spread, number, header.slot, header.round, said);
      bytes.insert(bytes.end(), code.begin(), code.end());
    } else if (said.size() == kQuestionBytes) {
      std::uint16_t origin, count;
      load_fields(said.data(), origin, count);
      std::array<std::byte, 30> question;
      store_fields(question.data(), number, header.slot, header.round, origin, count, std::uint16_t{0},
                   static_cast<std::uint16_t>(kRank), ++fetches);
      const Mac code = authenticate(kKeys.fetch, question);
      bytes.resize(bytes.size() + 10);
      store_fields(bytes.data() + bytes.size() - 10, std::uint16_t{0}, fetches);
      bytes.insert(bytes.end(), code.begin(), code.end());
    }
    return bytes;
  }

  /// Delivers a packet of the machine with changed bytes or without its end.
  void spoilt() {
    if (sent.empty()) return;
    std::vector<std::byte> bytes = sent[script.next() % sent.size()];
    for (int edits = script.next() % 6; edits > 0; --edits)
      bytes[script.next() % bytes.size()] = std::byte{script.next()};
    if (script.next() % 4 == 0) bytes.resize(script.next() % (bytes.size() + 1));
    const bool spread = bytes.size() > ina::kHeaderBytes + kCodeBytes &&
                        ina::decode(bytes.data()).kind == static_cast<std::uint8_t>(ina::Kind::kSpread);
    if (spread) bytes.resize(bytes.size() - kCodeBytes);
    deliver(spread ? proven(bytes) : bytes);
  }

  void raw() {
    std::vector<std::byte> bytes(script.next() % 48);
    for (auto& byte : bytes) byte = std::byte{script.next()};
    deliver(bytes);
  }

  void deliver(const std::vector<std::byte>& bytes) {
    machine.receive(bytes, now);
    ++received;
  }

  void poll() {
    while (const auto done = machine.poll()) {
      require(done->slice_id < memory.size());
      end(memory[done->slice_id]);
    }
  }

  /// Frees the memory of a slice, as the caller does.
  void end(Memory& mine) {
    require(mine.output.empty() || mine.guarded());
    mine.input = {};
    mine.output = {};
  }

  void halt() {
    machine.halt();
    for (Memory& mine : memory) end(mine);
  }

  void move() {
    machine.pause();
    require(machine.transmit(now).bytes.empty() && machine.deadline() == kNever);
    machine.resume(3, kRank, now);
  }

  void step() {
    switch (script.next() % 12) {
      case 0:
        return start();
      case 1:
        now += script.next() * kMillisecond;
        return machine.expire(now);
      case 2:
        now += script.next() * kMicrosecond;
        return machine.expire(now);
      case 3:
        return raw();
      case 4:
        return spoilt();
      case 5:
        return script.next() % 16 == 0 ? halt() : transmit();
      case 6:
        return move();
      case 7:
      case 8:
        return packet(/*fetch=*/true);
      default:
        return packet(/*fetch=*/false);
    }
  }

  Script script;
  Spreader machine;
  std::vector<Memory> memory;
  std::vector<std::vector<std::byte>> sent;
  std::uint64_t task = 0;
  std::uint64_t received = 0;
  std::uint64_t fetches = 0;
  std::size_t chunk_bytes = 1;
  Time now = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Play play(Script(data, size));
  play.start();
  while (!play.script.ended()) {
    play.step();
    play.transmit();
    play.poll();
  }
  for (const Memory& mine : play.memory) require(mine.output.empty() || mine.guarded());
  const SpreaderStats& stats = play.machine.stats();
  require(stats.received + stats.duplicates + stats.stale + stats.refused_in_all() <= play.received);
  return 0;
}
