// SPDX-License-Identifier: Apache-2.0
// The engine against hostile plans and packets. RAILWEAVE_FUZZ_PLAN names a file with a plan (the second
// value of railweave.switch.lowering.lower). With this variable, the input is a sequence of packets, each
// after two bytes of length. Without it, the input is a plan. If the plan loads, the engine processes a few
// fixed packets.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"

namespace {

using railweave::Bytes;
using railweave::engine::Engine;

struct Discard : railweave::engine::OutputSink {
  std::uint64_t checksum = 0;
  void emit(std::uint16_t port, const railweave::engine::Pieces& packet) override {
    for (const Bytes piece : packet.of) {
      for (const std::byte byte : piece)
        checksum = checksum * 31 + static_cast<unsigned>(byte);  // reads every byte
    }
    checksum += port;
  }
};

void run_packets(Engine& engine, Bytes input, Discard& sink) {
  const auto guard = engine.traffic();
  std::uint64_t now_us = 0;
  while (input.size() >= 2) {
    const std::size_t wanted = static_cast<std::size_t>(input[0]) << 8 | static_cast<std::size_t>(input[1]);
    input = input.subspan(2);
    const std::size_t size = wanted % 1600 < input.size() ? wanted % 1600 : input.size();
    engine.process(static_cast<std::uint16_t>(wanted & 7), input.first(size), now_us += 10, sink);
    input = input.subspan(size);
  }
}

std::unique_ptr<Engine> engine_of_environment() {
  const char* name = std::getenv("RAILWEAVE_FUZZ_PLAN");
  if (name == nullptr) return nullptr;
  std::ifstream file(name, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto engine = std::make_unique<Engine>(std::as_bytes(std::span(text)));
  for (std::uint16_t number = 1; number < 300; ++number) {  // so that the engine copies packets, too
    const auto state = engine->control();
    state->replication.set_group(number, {{1, 1}, {2, 2}});
    state->replication.set_session(number, {{{3, 0}}, number & 64u});
  }
  return engine;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::unique_ptr<Engine> kEngine = engine_of_environment();
  const Bytes input = std::as_bytes(std::span(data, size));
  Discard sink;
  if (kEngine) {
    run_packets(*kEngine, input, sink);
    return 0;
  }
  try {
    Engine engine(input);
    const std::vector<std::byte> packets(4096, std::byte{0x01});
    run_packets(engine, packets, sink);
    sink.checksum += engine.source().size();
  } catch (const railweave::engine::InvalidPlan&) {
  }
  return 0;
}
