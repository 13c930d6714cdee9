// SPDX-License-Identifier: Apache-2.0
// Recursive doubling: in step k, ranks whose numbers differ in bit k exchange all they have. log2 n steps,
// each with the whole slice: for small slices, whose cost is the steps. Where n is no power of two, the ranks
// too many hand their part to a neighbour first and get the result from it (Thakur, Rabenseifner and Gropp,
// "Optimization of collective communication operations in MPICH", 2005).
#pragma once

#include "collectives/stepwise.hpp"

namespace railweave {

/// An allreduce.
class RecursiveDoubling final : public Stepwise {
 public:
  RecursiveDoubling(Transport& transport, const Slice& slice);

  /// With whom a rank exchanges messages; some more than once.
  static std::vector<int> partners(int rank, int ranks);

 private:
  static std::vector<Step> plan(int rank, int ranks);
  /// What this rank has before a step; what the step brings is behind it.
  std::byte* own(std::size_t step) { return memory_.data() + 2 * step * bytes_; }
  Bytes outgoing(std::size_t step) override { return {own(step), bytes_}; }
  MutableBytes incoming(std::size_t step) override { return {own(step) + bytes_, bytes_}; }
  void load() override;
  void end_step(std::size_t step) override;
  void store() override;

  bool adopts_ = false;  // what this rank receives is the result
};

}  // namespace railweave
