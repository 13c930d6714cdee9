// SPDX-License-Identifier: Apache-2.0
// Recursive doubling: in step k, ranks whose numbers differ in bit k exchange all they have. log2 n steps,
// each with the whole slice: for small slices, whose cost is the steps. Where n is no power of two, the ranks
// too many hand their part to a neighbour first and get the result from it (Thakur, Rabenseifner and Gropp,
// "Optimization of collective communication operations in MPICH", 2005).
#pragma once

#include <vector>

#include "collectives/algorithm.hpp"

namespace railweave {

/// All messages are sent from and received into memory of the machine's own, so that the slice is the
/// caller's again as soon as the result is there, while the last messages may still be on their way.
class RecursiveDoubling final : public Algorithm {
 public:
  RecursiveDoubling(Transport& transport, const Slice& slice);

  void note_sent(int peer) override;
  bool awaits_sent(int peer) const override;
  void note_received(int peer) override;
  void advance(Time now) override;
  bool ready() const override { return position_ == steps_.size(); }
  bool finished() const override { return ready() && in_flight_.empty(); }

 private:
  enum class What {
    kSend,
    kReceive,
    kAdopt,
    kExchange
  };  // kReceive reduces, kAdopt takes what comes as the result

  struct Step {
    What what;
    int peer;
    bool arrived = false;
  };

  static bool sends(const Step& step) { return step.what == What::kSend || step.what == What::kExchange; }
  static bool receives(const Step& step) { return step.what != What::kSend; }
  void plan(int rank, int ranks);
  std::byte* own(std::size_t position) {
    return memory_.data() + 2 * position * bytes_;
  }  // what this rank has then
  std::byte* incoming(std::size_t position) { return own(position) + bytes_; }
  void start(Time now);
  void begin_step(Time now);
  void end_step();

  Transport& transport_;
  const Slice slice_;
  const std::size_t bytes_;
  std::vector<Step> steps_;
  std::vector<std::byte> memory_;
  std::size_t position_ = 0;
  std::vector<int> in_flight_;  // peers that are being sent to; each at most once
  bool started_ = false;
};

}  // namespace railweave
