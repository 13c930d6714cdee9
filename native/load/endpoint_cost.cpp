// SPDX-License-Identifier: Apache-2.0
#include "load/endpoint_cost.hpp"

#include <vector>

#include "core/bytes.hpp"
#include "ina/endpoint.hpp"
#include "loop/thread.hpp"

namespace railweave::load {
namespace {

/// Moves one batch to the switch and back. Returns false if there was nothing to send.
bool turn_round(ina::Endpoint& endpoint, std::vector<std::byte>& wire, EndpointCost& cost, Time& now) {
  constexpr std::size_t kBatch = 64;
  const Time begin = thread_time();
  std::vector<Bytes> batch;
  for (Bytes next; batch.size() < kBatch && !(next = endpoint.transmit(now)).empty();) batch.push_back(next);
  cost.transmit_ns += thread_time() - begin;
  wire.clear();
  for (const Bytes& packet : batch) {
    wire.insert(wire.end(), packet.begin(), packet.end());
    wire[wire.size() - packet.size()] = std::byte{ina::kVersion << 4 | static_cast<int>(ina::Kind::kResult)};
  }
  now += 100 * kMicrosecond;
  const Time turned = thread_time();
  Bytes rest(wire);
  for (const Bytes& packet : batch) {
    endpoint.receive(rest.first(packet.size()), now);
    rest = rest.subspan(packet.size());
  }
  cost.receive_ns += thread_time() - turned;
  return !batch.empty();
}

}  // namespace

EndpointCost measure_endpoint(DType dtype, ReduceOp op, std::uint32_t lanes, std::uint32_t slots,
                              std::uint64_t count, int rounds, bool sealed) {
  ina::EndpointOptions options{.group = 1, .child = 0, .slots = slots, .lanes = lanes, .world_size = 1};
  if (sealed) options.seal = {.secret = {}, .tree = 0, .rank = 0};
  ina::Endpoint endpoint(options);
  std::vector<float> values(count), results(count);
  for (std::uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1009) - 500.5f;
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
    while (turn_round(endpoint, wire, cost, now)) continue;
  }
  cost.chunks = endpoint.stats().contributions;
  return cost;
}

}  // namespace railweave::load
