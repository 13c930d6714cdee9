// SPDX-License-Identifier: Apache-2.0
// A rank of a simulation with a test's all-reduces and their results.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/calls.hpp"
#include "rails/ring_rail.hpp"
#include "rigs/arrays.hpp"

namespace railweave {

/// One collective of one rank. The call holds its arrays.
struct Call {
  DType dtype;
  ReduceOp op;
  ConstArray input;
  Array output;
  Collective collective;
  std::uint16_t root;
  // The rail carries this offset and count of the tensor, or of each shard.
  std::optional<std::pair<std::size_t, std::size_t>> part;

  // Elements of the tensor, or of one shard: the smaller side.
  std::size_t count() const { return std::min(input.nbytes(), output.nbytes()) / item_size(dtype); }
};

class SimulatedRank : protected RailListener {
 public:
  SimulatedRank(int rank, int ranks, std::unique_ptr<Transport> transport, RingRailOptions options,
                SpecialAlgorithm special)
      : calls_(rank, ranks), rail_(nullptr, std::move(transport), *this, options, std::move(special)) {
    calls_.add_rail();
  }

  /// Return the op index of the first call.
  std::uint32_t submit(const std::vector<Call>& calls, Time now) {
    const std::uint32_t first = calls_.next();
    for (const Call& call : calls) {
      const auto [offset, count] = call.part.value_or(std::pair(std::size_t{0}, call.count()));
      const Part part{.rail = 0, .offset = offset, .count = count};
      calls_.submit({.call = {.op_index = 0,  // the table numbers them
                              .collective = call.collective,
                              .dtype = call.dtype,
                              .op = call.op,
                              .root = call.root,
                              .count = call.count()},
                     .input = bytes_of(call.input),
                     .output = bytes_of(call.output),
                     .parts = {&part, 1}},
                    {}, now);
      start(now);
    }
    return first;
  }

  /// Returns the op indices of the incomplete calls. Their memory belongs to the caller again.
  std::vector<std::uint32_t> halt(Time now) {
    rail_.halt(now);
    return calls_.abort();
  }
  void restart(std::uint32_t incarnation, Time now) { rail_.restart({incarnation, {}}, now); }

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
  std::optional<MessageLabel> own_label(const SliceKey& key) const override {
    return calls_.label({.rail = 0}, key);
  }
  void start(Time now) {
    while (!failure_ && rail_.can_start()) {
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
