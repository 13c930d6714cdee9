// SPDX-License-Identifier: Apache-2.0
// The part of a call that one rail carries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/collective.hpp"

namespace railweave {

/// A part of one tensor that one rail carries in one collective. The sharded side, `input` of reduce_scatter
/// and `output` of all_gather, is world_size shards that lie `stride` elements apart. The slice is `count`
/// elements of each shard, from the pointer on. The sides overlap in two cases only. The other side may lie
/// at the own shard's place on the sharded side. If neither side is sharded, `input` may be `output`. In a
/// broadcast only the root reads its input, and all ranks write their output, the root too.
struct Slice {
  std::uint64_t id;  // comes back with slice_done; unique among the slices in progress
  CallDescription call;
  const std::byte* input;
  std::byte* output;
  std::size_t count;   // elements in this slice, per shard, at least 1
  std::size_t stride;  // elements between two shards of the sharded side: call.count; 0 where none is sharded
  int rank;            // this rank, which is also the place of its shard
  int world_size;
  std::uint16_t part = 0;  // which of the call's slices on its channel, from 0
};

}  // namespace railweave
