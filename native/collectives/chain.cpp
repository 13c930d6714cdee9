// SPDX-License-Identifier: Apache-2.0
#include "collectives/chain.hpp"

#include <algorithm>
#include <cstring>

namespace railweave {

Chain::Chain(Transport& transport, const Slice& slice, std::size_t segment_bytes)
    : transport_(transport),
      slice_(slice),
      before_((transport.rank() + transport.world_size() - 1) % transport.world_size()),
      behind_((transport.rank() + 1) % transport.world_size()),
      root_(transport.rank() == slice.call.root) {
  const std::size_t segment = std::max<std::size_t>(1, segment_bytes / item_size(slice.call.dtype));
  segments_ = (slice.count + segment - 1) / segment;
  receives_ = root_ ? 0 : segments_;
  sends_ = behind_ == slice.call.root ? 0 : segments_;
}

void Chain::advance(Time now) {
  for (bool moved = true; moved;) {
    moved = false;
    for (; receive_posted_ < std::min(receives_, received_ + kWindow); moved = true) {
      const auto [offset, size] = range(receive_posted_++);
      transport_.post_receive(before_, {slice_.output + offset, size}, now);
    }
    for (; send_posted_ < (root_ ? sends_ : std::min(sends_, received_)); moved = true) {
      const auto [offset, size] = range(send_posted_++);
      transport_.post_send(behind_, {(root_ ? slice_.input : slice_.output) + offset, size}, now);
    }
  }
  if (!copied_) copy();
}

Chain::Range Chain::range(std::size_t segment) const {
  const std::size_t item = item_size(slice_.call.dtype);
  const std::size_t begin = slice_.count * segment / segments_;
  return {.offset = begin * item, .size = (slice_.count * (segment + 1) / segments_ - begin) * item};
}

// After the first messages are on their way.
void Chain::copy() {
  copied_ = true;
  const std::size_t bytes = slice_.count * item_size(slice_.call.dtype);
  if (root_ && slice_.output != slice_.input) std::memcpy(slice_.output, slice_.input, bytes);
}

}  // namespace railweave
