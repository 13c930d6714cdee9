// SPDX-License-Identifier: Apache-2.0
#include "ina/measure.hpp"

#include <time.h>

#include <vector>

#include "ina/endpoint.hpp"

namespace railweave::ina {
namespace {

constexpr std::size_t kBatch = 64;

Time cpu_time() {
  timespec at;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return at.tv_sec * kSecond + at.tv_nsec;
}

/// Moves one batch to the switch and back; false if there was nothing to send.
bool turn_round(Endpoint& endpoint, std::vector<std::byte>& wire, EndpointCost& cost, Time& clock) {
  const Time begin = cpu_time();
  std::vector<Bytes> batch;
  for (Bytes next; batch.size() < kBatch && !(next = endpoint.transmit(clock)).empty();)
    batch.push_back(next);
  cost.transmit += cpu_time() - begin;
  wire.clear();
  for (const Bytes& packet : batch) {
    wire.insert(wire.end(), packet.begin(), packet.end());
    wire[wire.size() - packet.size()] = std::byte{kVersion << 4 | static_cast<int>(Kind::kResult)};
  }
  clock += 100 * kMicrosecond;
  const Time turned = cpu_time();
  std::size_t at = 0;
  for (const Bytes& packet : batch) {
    endpoint.receive(Bytes(wire).subspan(at, packet.size()), clock);
    at += packet.size();
  }
  cost.receive += cpu_time() - turned;
  return !batch.empty();
}

}  // namespace

EndpointCost measure_endpoint(DType dtype, ReduceOp op, std::uint32_t lanes, std::uint32_t slots,
                              std::uint64_t count, int rounds) {
  Endpoint endpoint({.group = 1, .child = 0, .slots = slots, .lanes = lanes, .world_size = 1});
  std::vector<float> values(count);
  for (std::uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1009) - 500.5f;
  std::vector<float> results(count);
  std::vector<std::byte> wire;
  EndpointCost cost{};
  Time clock = 0;
  for (int round = 0; round < rounds; ++round) {
    endpoint.start({.id = static_cast<std::uint64_t>(round),
                    .call = {.op_index = static_cast<std::uint32_t>(round),
                             .collective = Collective::kAllReduce,
                             .dtype = dtype,
                             .op = op,
                             .root = 0,
                             .count = count},
                    .input = reinterpret_cast<const std::byte*>(values.data()),
                    .output = reinterpret_cast<std::byte*>(results.data()),
                    .count = count,
                    .stride = 0,
                    .rank = 0,
                    .world_size = 1});
    while (turn_round(endpoint, wire, cost, clock)) {
    }
  }
  cost.chunks = endpoint.stats().contributions;
  return cost;
}

}  // namespace railweave::ina
