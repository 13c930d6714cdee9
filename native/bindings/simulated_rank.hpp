// SPDX-License-Identifier: Apache-2.0
// A rank of a simulation: the allreduces that a test gives it, and what has become of them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/calls.hpp"
#include "bindings/arrays.hpp"
#include "rails/ring_rail.hpp"

namespace railweave {

/// A call of one rank, which holds its arrays.
struct Sum {
  DType dtype;
  ReduceOp op;
  ConstArray input;
  Array output;
};

class SimulatedRank : protected RailListener {
 public:
  SimulatedRank(int rank, int ranks, std::unique_ptr<Transport> transport, SpecialAlgorithm special)
      : calls_(rank, ranks), rail_(std::move(transport), *this, {}, std::move(special)) {
    calls_.add_rail();
  }

  void submit(const std::vector<Sum>& sums, Time now) {
    for (const Sum& sum : sums) {
      const auto count = sum.output.size();
      const Part part{.rail = 0, .offset = 0, .count = count};
      calls_.submit({.call = {.op_index = 0,  // the table numbers them
                              .collective = Collective::kAllReduce,
                              .dtype = sum.dtype,
                              .op = sum.op,
                              .root = 0,
                              .count = count},
                     .input = bytes_of(sum.input),
                     .output = bytes_of(sum.output),
                     .parts = {&part, 1}},
                    {}, now);
      start(now);
    }
  }

  std::pair<std::vector<std::uint32_t>, std::optional<std::string>> outcome() const {
    return {done_, failure_};
  }

  void rail_failed(const Failure& failure, Time now) override {
    if (failure_) return;
    failure_ = failure.message;
    rail_.announce(failure, now);
    rail_.abort();
    calls_.abort();
  }

 protected:
  void slice_done(std::uint64_t id, Time now) override {
    done_at_ = now;
    done_.push_back(calls_.finish({.rail = 0}, id, now)->op_index);
    start(now);
  }
  std::optional<MessageLabel> pending_label(const SliceKey& key) const override {
    return calls_.label({.rail = 0}, key);
  }
  void start(Time now) {
    while (!failure_ && rail_.takes()) {
      const auto slice = calls_.take({.rail = 0}, calls_.next());
      if (!slice) return;
      rail_.start(*slice, now);
    }
  }

  Calls calls_;
  RingRail rail_;
  std::vector<std::uint32_t> done_;
  Time done_at_ = 0;  // the last of them
  std::optional<std::string> failure_;
};

}  // namespace railweave
