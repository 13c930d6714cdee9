// SPDX-License-Identifier: Apache-2.0
#include "ina/measure.hpp"

#include <vector>

#include "ina/endpoint.hpp"

namespace railweave::ina {
namespace {

constexpr std::size_t kBatch = 64;

/// Moves one batch to the switch and back; false if there was nothing to send.
bool turn_round(Endpoint& endpoint, std::vector<std::byte>& wire, EndpointCost& cost, Time& now,
                const std::function<Time()>& clock) {
  const Time begin = clock();
  std::vector<Bytes> batch;
  for (Bytes next; batch.size() < kBatch && !(next = endpoint.transmit(now)).empty();) batch.push_back(next);
  cost.transmit += clock() - begin;
  wire.clear();
  for (const Bytes& packet : batch) {
    wire.insert(wire.end(), packet.begin(), packet.end());
    wire[wire.size() - packet.size()] = std::byte{kVersion << 4 | static_cast<int>(Kind::kResult)};
  }
  now += 100 * kMicrosecond;
  const Time turned = clock();
  std::size_t at = 0;
  for (const Bytes& packet : batch) {
    endpoint.receive(Bytes(wire).subspan(at, packet.size()), now);
    at += packet.size();
  }
  cost.receive += clock() - turned;
  return !batch.empty();
}

}  // namespace

EndpointCost measure_endpoint(DType dtype, ReduceOp op, std::uint32_t lanes, std::uint32_t slots,
                              std::uint64_t count, int rounds, const std::function<Time()>& clock) {
  Endpoint endpoint({.group = 1, .child = 0, .slots = slots, .lanes = lanes, .world_size = 1});
  std::vector<float> values(count);
  for (std::uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1009) - 500.5f;
  std::vector<float> results(count);
  std::vector<std::byte> wire;
  EndpointCost cost{};
  Time now = 0;
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
    while (turn_round(endpoint, wire, cost, now, clock)) {
    }
  }
  cost.chunks = endpoint.stats().contributions;
  return cost;
}

}  // namespace railweave::ina
