// SPDX-License-Identifier: Apache-2.0
// Collectives of a few steps, for slices so small that the steps are what they cost.
#pragma once

#include <vector>

#include "collectives/algorithm.hpp"

namespace railweave {

/// Step by step sends one message, receives one, or both at once. Receives are posted at the start.
///
/// All messages are sent from and received into memory of the machine's own, so that the slice is the
/// caller's again as soon as the result is there, while the last messages may still be on their way. What a
/// step sends must stay as it is.
class Stepwise : public Algorithm {
 public:
  void note_sent(int peer) override;
  bool awaits_sent(int peer) const override;
  void note_received(int peer) override;
  void advance(Time now) override;
  bool ready() const override { return position_ == steps_.size(); }
  bool finished() const override { return ready() && in_flight_.empty(); }

 protected:
  static constexpr int kNobody = -1;

  struct Step {
    int to = kNobody;
    int from = kNobody;
    bool arrived = false;
  };

  /// Whoever derives from this fills `steps_` and sizes `memory_` when it is made.
  Stepwise(Transport& transport, const Slice& slice);

  virtual Bytes outgoing(std::size_t step) = 0;
  virtual MutableBytes incoming(std::size_t step) = 0;
  /// Copies the slice's input into `memory_`.
  virtual void load() = 0;
  /// What a step was to send is posted, what it was to bring is here.
  virtual void end_step(std::size_t) {}
  /// Writes the slice's output.
  virtual void store() = 0;

  Transport& transport_;
  const Slice slice_;
  const std::size_t bytes_;  // of the slice; of one shard of it, where it has shards
  std::vector<Step> steps_;
  std::vector<std::byte> memory_;

 private:
  void start(Time now);
  void begin_step(Time now);

  std::size_t position_ = 0;
  std::vector<int> in_flight_;  // peers that are being sent to, as often as messages are
  bool started_ = false;
};

}  // namespace railweave
