// SPDX-License-Identifier: Apache-2.0
// railweave._native.collectives: the reduce kernels, and rails of rings over a simulated network, for tests.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>

#include "agent/calls.hpp"
#include "bindings/values.hpp"
#include "collectives/choose.hpp"
#include "collectives/label.hpp"
#include "collectives/reduce.hpp"
#include "collectives/simulation.hpp"
#include "rails/ring_rail.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

constexpr int kReused = 0xee;  // what a caller writes into memory that is its own again

using Array = nb::ndarray<nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstArray = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::byte* bytes_of(const Array& array) { return static_cast<std::byte*>(array.data()); }
const std::byte* bytes_of(const ConstArray& array) { return static_cast<const std::byte*>(array.data()); }

void reduce_arrays(DType dtype, ReduceOp op, const Array& into, const ConstArray& low,
                   const ConstArray& high) {
  const std::size_t size = into.nbytes();
  if (low.nbytes() != size || high.nbytes() != size) throw std::invalid_argument("arrays differ in size");
  reduce(dtype, op, bytes_of(into), bytes_of(low), bytes_of(high), size / item_size(dtype));
}

// `part` is an offset and a count in the tensor, or in each shard: what the rail carries.
struct Call {
  DType dtype;
  ReduceOp op;
  ConstArray input;
  Array output;
  Collective collective;
  std::uint16_t root;
  std::optional<std::pair<std::size_t, std::size_t>> part;

  // Of the tensor, or of one shard: the lesser side.
  std::size_t count() const { return std::min(input.nbytes(), output.nbytes()) / item_size(dtype); }
};

// One rank of the simulation: submits all its calls at once and keeps what is reported.
class SimulatedRank final : public RailListener {
 public:
  SimulatedRank(SimulatedNetwork& network, int rank, int ranks, RingRailOptions options)
      : calls_(rank, ranks), rail_(network.transport(rank), *this, options) {
    calls_.add_rail();
  }

  void submit(const std::vector<Call>& calls, Time now = 0) {
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
  }

  /// The outputs of what is not complete are the caller's again, who uses them for something else.
  void halt(const std::vector<Call>& calls, Time now) {
    rail_.halt(now);
    const std::size_t first = calls_.next() - calls.size();
    for (const std::uint32_t op_index : calls_.abort()) {
      const Array& output = calls[op_index - first].output;
      std::fill_n(bytes_of(output), output.nbytes(), static_cast<std::byte>(kReused));
    }
  }
  void restart(std::uint32_t incarnation, Time now) { rail_.restart({incarnation, {}}, now); }

  std::pair<std::vector<std::uint32_t>, std::optional<std::string>> outcome() const {
    return {done_, failure_};
  }

  void slice_done(std::uint64_t id, Time now) override {
    done_.push_back(calls_.finish({.rail = 0}, id, now)->op_index);
    start(now);
  }
  std::optional<MessageLabel> pending_label(const SliceKey& key) const override {
    return calls_.label({.rail = 0}, key);
  }
  void rail_failed(const Failure& failure, Time now) override {
    failure_ = failure.message;
    rail_.announce(failure, now);
    rail_.abort();
  }

 private:
  void start(Time now) {
    while (rail_.takes()) {
      const auto slice = calls_.take({.rail = 0}, calls_.next());
      if (!slice) return;
      rail_.start(*slice, now);
    }
  }

  Calls calls_;
  RingRail rail_;
  std::vector<std::uint32_t> done_;
  std::optional<std::string> failure_;
};

/// Every rank's calls by incarnation; each but the last is halted, rank by rank, at some time.
class Simulation {
 public:
  using Incarnations = std::vector<std::vector<std::vector<Call>>>;

  Simulation(const Incarnations& calls, std::uint64_t seed, RingRailOptions options)
      : calls_(calls), ranks_(static_cast<int>(calls.at(0).size())), random_(seed), network_(ranks_, seed) {
    for (int rank = 0; rank < ranks_; ++rank)
      hosts_.push_back(std::make_unique<SimulatedRank>(network_, rank, ranks_, options));
  }

  auto run() {
    begin();
    network_.run();
    std::vector<std::pair<std::vector<std::uint32_t>, std::optional<std::string>>> outcomes;
    for (const auto& host : hosts_) outcomes.push_back(host->outcome());
    return outcomes;
  }

 private:
  void soon(Duration within, std::function<void()> action) {
    network_.after(static_cast<Duration>(random_() % static_cast<std::uint64_t>(within)), std::move(action));
  }

  void begin() {
    halted_ = 0;
    for (int rank = 0; rank < ranks_; ++rank) soon(kMillisecond / 2, [this, rank] { begin(rank); });
  }

  void begin(int rank) {
    const auto& calls = calls_[incarnation_][static_cast<std::size_t>(rank)];
    if (incarnation_ > 0) hosts_[rank]->restart(incarnation_, network_.now());
    hosts_[rank]->submit(calls, network_.now());
    if (incarnation_ + 1 == calls_.size()) return;
    soon(2 * kMillisecond, [this, rank, &calls] {
      hosts_[rank]->halt(calls, network_.now());
      if (++halted_ < ranks_) return;
      ++incarnation_;
      begin();
    });
  }

  const Incarnations& calls_;
  const int ranks_;
  std::mt19937_64 random_;
  SimulatedNetwork network_;
  std::vector<std::unique_ptr<SimulatedRank>> hosts_;
  std::uint32_t incarnation_ = 0;
  int halted_ = 0;
};

auto simulate(const Simulation::Incarnations& calls, std::uint64_t seed, std::size_t small_bytes,
              std::size_t segment_bytes, std::size_t bruck_bytes) {
  const AlgorithmOptions options{
      .small_bytes = small_bytes, .bruck_bytes = bruck_bytes, .segment_bytes = segment_bytes};
  return Simulation(calls, seed, options).run();
}

}  // namespace

void bind_collectives(nb::module_& m) {
  nb::module_ sub = m.def_submodule("collectives", "Reduce kernels and algorithms");
  RAILWEAVE_ENUM(sub, DType, kFloat32, kInt32, kFloat16, kBFloat16, kFloat64, kInt8, kUInt8, kInt64);
  RAILWEAVE_ENUM(sub, ReduceOp, kSum, kMax, kMin, kAvg, kProd);
  RAILWEAVE_ENUM(sub, Collective, kAllReduce, kReduceScatter, kAllGather, kBroadcast);
  RAILWEAVE_ENUM(sub, Called, kAsCarried, kEmpty, kReduce, kEmptyReduce, kBarrier);
  // Parts of a key that every call looks up: Enum's own hash is a function in Python.
  for (const char* name : {"DType", "ReduceOp", "Collective", "Called"})
    sub.attr(name).attr("__hash__") = nb::module_::import_("builtins").attr("object").attr("__hash__");
  nb::class_<Call>(sub, "Call", "One collective of one rank, or the part (offset, count) of it")
      .def(nb::init<DType, ReduceOp, ConstArray, Array, Collective, std::uint16_t,
                    std::optional<std::pair<std::size_t, std::size_t>>>(),
           "dtype"_a, "op"_a, "input"_a, "output"_a, "collective"_a = Collective::kAllReduce, "root"_a = 0,
           "part"_a = nb::none());
  sub.def("item_size", &item_size, "dtype"_a, "Bytes of an element");
  RAILWEAVE_ENUM(sub, Method, kRecursiveDoubling, kBruck, kRing, kBinomial, kChain);
  sub.def(
      "choose_method",
      [](Collective collective, std::size_t bytes, int ranks, std::uint64_t rate_bps) {
        return choose_method(collective, bytes, ranks, {.rate_bps = rate_bps});
      },
      "collective"_a, "bytes"_a, "ranks"_a, "rate_bps"_a,
      "How TCP and RDMA rails carry a tensor of so many bytes; rate 0: unknown");
  sub.def("reduce", &reduce_arrays, "dtype"_a, "op"_a, "into"_a, "low"_a, "high"_a,
          "into = op(low, high), element by element; AVG adds");
  sub.attr("REUSED") = kReused;
  sub.def("simulate", &simulate, "calls"_a, "seed"_a, "small_bytes"_a, "segment_bytes"_a, "bruck_bytes"_a = 0,
          "Run calls, by incarnation and rank, over a simulated network; all incarnations but the last are "
          "halted at random times, and outputs of what is not done then hold REUSED in every byte. Per rank: "
          "the op indices completed, in order, and the failure's message or None");
}

}  // namespace railweave
