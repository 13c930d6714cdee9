// SPDX-License-Identifier: Apache-2.0
// Broadcast along a chain: the slice goes from the root through all ranks in order, segment by segment. So
// all links work at the same time. It takes as long as the slice on one link, plus n - 2 segments.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "collectives/algorithm.hpp"

namespace railweave {
namespace {

/// Non-root ranks receive straight into the output and send from there.
class Chain final : public Algorithm {
 public:
  static constexpr std::size_t kWindow = 16;  // receives that are posted ahead

  Chain(Transport& transport, const Slice& slice, std::size_t segment_bytes)
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

  void note_sent(int) override { ++sent_; }
  bool awaits_sent(int) const override { return sent_ < send_posted_; }
  void note_received(int) override { ++received_; }
  void advance(Time now) override {
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
    // Copies segments as they are sent: a copy of a large slice at once would delay everything else.
    for (; copied_ < copies_ && (copied_ < sent_ || sends_ == 0); ++copied_) {
      const auto [offset, size] = range(copied_);
      std::memcpy(slice_.output + offset, slice_.input + offset, size);
    }
  }
  bool ready() const override { return received_ == receives_ && sent_ == sends_ && copied_ == copies_; }
  bool finished() const override { return ready(); }

 private:
  struct Range {
    std::size_t offset;  // bytes
    std::size_t size;
  };
  Range range(std::size_t segment) const {
    const std::size_t item = item_size(slice_.call.dtype);
    const std::size_t begin = slice_.count * segment / segments_;
    return {.offset = begin * item, .size = (slice_.count * (segment + 1) / segments_ - begin) * item};
  }

  Transport& transport_;
  const Slice slice_;
  const int before_;  // the previous rank and the next rank in the chain
  const int behind_;
  const bool root_;
  std::size_t segments_;
  std::size_t receives_;  // messages: all segments, or none
  std::size_t sends_;
  std::size_t copies_;  // segments that the root copies to its output, or none
  std::size_t receive_posted_ = 0;
  std::size_t received_ = 0;
  std::size_t send_posted_ = 0;
  std::size_t sent_ = 0;
  std::size_t copied_ = 0;
};

}  // namespace

std::unique_ptr<Algorithm> make_chain(Transport& transport, const Slice& slice, std::size_t segment_bytes) {
  return std::make_unique<Chain>(transport, slice, segment_bytes);
}

}  // namespace railweave
