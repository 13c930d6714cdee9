// SPDX-License-Identifier: Apache-2.0
// Recursive doubling: in step k, ranks whose numbers differ in bit k exchange all data. It takes log2 n
// steps, each with the whole slice, so it suits small slices. If n is no power of two, extra ranks first send
// their data to a neighbour, which sends them the result at the end. Source: Thakur, Rabenseifner and Gropp,
// "Optimization of collective communication operations in MPICH", 2005.
#include <bit>
#include <cstring>

#include "collectives/reduce.hpp"
#include "collectives/stepwise.hpp"

namespace railweave {
namespace {

/// An allreduce.
class RecursiveDoubling final : public Stepwise {
 public:
  RecursiveDoubling(Transport& transport, const Slice& slice) : Stepwise(transport, slice) {
    steps_ = plan(transport.rank(), transport.world_size());
    adopts_ = !steps_.empty() && steps_.front().from == kNobody;
    memory_.resize((2 * steps_.size() + 1) * bytes_);
  }

  static std::vector<int> partners(int rank, int ranks) {
    std::vector<int> all;
    for (const Step& step : plan(rank, ranks)) all.push_back(step.to == kNobody ? step.from : step.to);
    return all;
  }

 private:
  static std::vector<Step> plan(int rank, int ranks) {
    const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
    const int extra = ranks - core;  // the first 2 * extra ranks fold pairwise, even into odd
    const bool folds = rank < 2 * extra;
    if (folds && rank % 2 == 0) return {{.to = rank + 1}, {.from = rank + 1}};
    std::vector<Step> steps;
    if (folds) steps.push_back({.from = rank - 1});
    const int place =
        folds ? rank / 2 : rank - extra;  // among those that take part in the doubling, in order of rank
    for (int bit = 1; bit < core; bit *= 2) {
      const int other = place ^ bit;
      const int partner = other < extra ? 2 * other + 1 : other + extra;
      steps.push_back({.to = partner, .from = partner});
    }
    if (folds) steps.push_back({.to = rank - 1});
    return steps;
  }
  /// This rank's data before a step. The data received in the step follow directly behind.
  std::byte* own(std::size_t step) { return memory_.data() + 2 * step * bytes_; }
  Bytes outgoing(std::size_t step) override { return {own(step), bytes_}; }
  MutableBytes incoming(std::size_t step) override { return {own(step) + bytes_, bytes_}; }
  void load() override { std::memcpy(own(0), slice_.input, bytes_); }
  // Sent data must not change until they have left. So every step stores its result in another place.
  void end_step(std::size_t step) override {
    std::byte* into = own(step + 1);
    std::byte* came = incoming(step).data();
    const int from = steps_[step].from;
    if (from == kNobody || adopts_) {
      std::memcpy(into, from == kNobody ? own(step) : came, bytes_);
      return;
    }
    const bool lower = transport_.rank() < from;
    reduce(slice_.call.dtype, slice_.call.op, into, lower ? own(step) : came, lower ? came : own(step),
           slice_.count);
  }
  void store() override {
    std::memcpy(slice_.output, own(steps_.size()), bytes_);
    finish(slice_.call.dtype, slice_.call.op, slice_.output, slice_.count, slice_.world_size);
  }

  bool adopts_ = false;  // this rank receives the result
};

}  // namespace

std::vector<int> doubling_partners(int rank, int ranks) { return RecursiveDoubling::partners(rank, ranks); }

std::unique_ptr<Algorithm> make_recursive_doubling(Transport& transport, const Slice& slice) {
  return std::make_unique<RecursiveDoubling>(transport, slice);
}

}  // namespace railweave
