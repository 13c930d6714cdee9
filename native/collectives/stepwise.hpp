// SPDX-License-Identifier: Apache-2.0
// Collectives with few steps, for slices so small that the number of steps determines the time.
#pragma once

#include <vector>

#include "collectives/algorithm.hpp"

namespace railweave {

/// Each step sends one message, receives one, or does both at once. All receives are posted at the start.
///
/// The machine sends from and receives into its own memory. So the slice is the caller's again as soon as the
/// result is there, although the last messages may still be leaving. Later steps must not change data that a
/// step sends.
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

  /// The constructors of derived classes fill `steps_` and size `memory_`.
  Stepwise(Transport& transport, const Slice& slice);

  virtual Bytes outgoing(std::size_t step) = 0;
  virtual MutableBytes incoming(std::size_t step) = 0;
  /// Copies the slice's input into `memory_`.
  virtual void load() = 0;
  /// Called when a step's send is posted and its message has arrived.
  virtual void end_step(std::size_t) {}
  /// Writes the slice's output.
  virtual void store() = 0;

  Transport& transport_;
  const Slice slice_;
  const std::size_t bytes_;  // of the slice, or of one shard if the slice has shards
  std::vector<Step> steps_;
  std::vector<std::byte> memory_;

 private:
  void start(Time now);
  void begin_step(Time now);

  std::size_t position_ = 0;
  std::vector<int> in_flight_;  // peers of unfinished sends, once per message
  bool started_ = false;
};

}  // namespace railweave
