// SPDX-License-Identifier: Apache-2.0
// Broadcast along a chain: the slice goes from the root through all ranks in order, segment by segment, so
// that all links carry it at once. n - 2 segments more time than one link takes for the slice.
#pragma once

#include <cstddef>

#include "collectives/algorithm.hpp"

namespace railweave {

/// Straight into place: non-root ranks receive into the output and send from there.
class Chain final : public Algorithm {
 public:
  static constexpr std::size_t kWindow = 16;  // receives that are posted ahead

  Chain(Transport& transport, const Slice& slice, std::size_t segment_bytes);

  void note_sent(int) override { ++sent_; }
  bool awaits_sent(int) const override { return sent_ < send_posted_; }
  void note_received(int) override { ++received_; }
  void advance(Time now) override;
  bool ready() const override { return received_ == receives_ && sent_ == sends_ && copied_ == copies_; }
  bool finished() const override { return ready(); }

 private:
  struct Range {
    std::size_t offset;  // bytes
    std::size_t size;
  };
  Range range(std::size_t segment) const;

  Transport& transport_;
  const Slice slice_;
  const int before_;  // the rank that hands on to this one, and the one that this one hands on to
  const int behind_;
  const bool root_;
  std::size_t segments_;
  std::size_t receives_;  // messages: all segments, or none
  std::size_t sends_;
  std::size_t copies_;  // likewise: into the root's own output
  std::size_t receive_posted_ = 0;
  std::size_t received_ = 0;
  std::size_t send_posted_ = 0;
  std::size_t sent_ = 0;
  std::size_t copied_ = 0;
};

}  // namespace railweave
