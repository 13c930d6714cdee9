// SPDX-License-Identifier: Apache-2.0
// The part of a call that one rail carries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/collective.hpp"

namespace railweave {

/// A part of one tensor that one rail carries in one collective. The sharded side, `input` of reduce_scatter
/// and `output` of all_gather, is world_size shards that lie `stride` elements apart; the slice is `count`
/// elements of each, from where the pointer shows. The own shard's place on that side may be what lies on the
/// other one, and `input` may be `output` where neither is sharded; else they do not overlap. Of a broadcast
/// only the root reads its input; all write their output, the root too.
struct Slice {
  std::uint64_t id;  // comes back with slice_done; unique among the slices in progress
  CallDescription call;
  const std::byte* input;
  std::byte* output;
  std::size_t count;   // elements in this slice, per shard, at least 1
  std::size_t stride;  // elements between two shards of the sharded side: call.count; 0 where none is sharded
  int rank;            // this rank's, which is also its shard's place
  int world_size;
  std::uint16_t part = 0;  // which of the call's slices on its channel, from 0
};

}  // namespace railweave
