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
  copies_ = root_ && slice.output != slice.input ? segments_ : 0;
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
  // As they are sent: all at once, a large slice would hold up everything else.
  for (; copied_ < copies_ && (copied_ < sent_ || sends_ == 0); ++copied_) {
    const auto [offset, size] = range(copied_);
    std::memcpy(slice_.output + offset, slice_.input + offset, size);
  }
}

Chain::Range Chain::range(std::size_t segment) const {
  const std::size_t item = item_size(slice_.call.dtype);
  const std::size_t begin = slice_.count * segment / segments_;
  return {.offset = begin * item, .size = (slice_.count * (segment + 1) / segments_ - begin) * item};
}

}  // namespace railweave
