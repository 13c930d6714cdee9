// SPDX-License-Identifier: Apache-2.0
// The description of a collective call, shared by all rails.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railweave {

enum class Collective : std::uint8_t { kAllReduce = 0, kReduceScatter = 1, kAllGather = 2, kBroadcast = 3 };
/// Whether the tensor on one side is world_size times the other one: a shard of each rank.
constexpr bool is_sharded(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllGather;
}

/// The call of the program, if it is more than the collective that rails carry. Ranks compare it.
enum class Called : std::uint8_t {
  kAsCarried = 0,
  kEmpty = 1,        // without elements: rails carry one element instead
  kReduce = 2,       // an all_reduce of which only `root` keeps the result
  kEmptyReduce = 3,  // both
  kBarrier = 4,      // an all_reduce of one element
};
constexpr bool is_empty(Called called) { return called == Called::kEmpty || called == Called::kEmptyReduce; }
constexpr bool is_reduce(Called called) {
  return called == Called::kReduce || called == Called::kEmptyReduce;
}

enum class DType : std::uint8_t {
  kFloat32 = 0,
  kInt32 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kFloat64 = 4,
  kInt8 = 5,
  kUInt8 = 6,
  kInt64 = 7,
};
enum class ReduceOp : std::uint8_t { kSum = 0, kMax = 1, kMin = 2, kAvg = 3, kProd = 4 };

constexpr std::size_t item_size(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUInt8:
      return 1;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
  }
  __builtin_unreachable();
}

/// The description of a collective call that all ranks must share.
struct CallDescription {
  std::uint32_t op_index;  // counts up from 0 in a communicator
  Collective collective;
  DType dtype;
  ReduceOp op;         // of all_reduce and reduce_scatter; else kSum
  std::uint16_t root;  // of broadcast and reduce; else 0
  // Elements of the whole tensor, not of one rail's slice, for all_reduce and broadcast; of one rank's shard
  // for reduce_scatter and all_gather.
  std::uint64_t count;
  Called called = Called::kAsCarried;

  bool operator==(const CallDescription&) const = default;
};

/// Bytes of the whole tensor. `count` is its elements, or those of each shard if it is sharded.
constexpr std::size_t tensor_bytes(const CallDescription& call, std::size_t count, int world_size) {
  const std::size_t shards = is_sharded(call.collective) ? static_cast<std::size_t>(world_size) : 1;
  return count * item_size(call.dtype) * shards;
}

/// 32-bit FNV-1a over the description's fields: the `mark` that contributions to one chunk must share.
constexpr std::uint32_t mark_of(const CallDescription& call) {
  std::uint32_t hash = 2166136261u;
  auto mix = [&hash](std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      hash = (hash ^ static_cast<std::uint32_t>((value >> (8 * i)) & 0xff)) * 16777619u;
    }
  };
  mix(call.op_index, 4);
  mix(static_cast<std::uint8_t>(call.collective), 1);
  mix(static_cast<std::uint8_t>(call.dtype), 1);
  mix(static_cast<std::uint8_t>(call.op), 1);
  mix(call.root, 2);
  mix(call.count, 8);
  mix(static_cast<std::uint8_t>(call.called), 1);
  return hash;
}

}  // namespace railweave
