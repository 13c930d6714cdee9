// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.collectives: the reduce kernels, and rails of rings over a simulated network, for tests.
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

#include "bindings/values.hpp"
#include "collectives/reduce.hpp"
#include "rigs/network_simulation.hpp"
#include "rigs/rig.hpp"
#include "rigs/simulated_rank.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

constexpr int kReused = 0xee;  // the caller overwrites returned memory with this byte

void reduce_arrays(DType dtype, ReduceOp op, const Array& into, const ConstArray& low,
                   const ConstArray& high) {
  const std::size_t size = into.nbytes();
  if (low.nbytes() != size || high.nbytes() != size) throw std::invalid_argument("arrays differ in size");
  reduce(dtype, op, bytes_of(into), bytes_of(low), bytes_of(high), size / item_size(dtype));
}

/// All ranks' calls by incarnation. Every incarnation except the last is halted at some time, rank by rank.
class Simulation {
 public:
  using Incarnations = std::vector<std::vector<std::vector<Call>>>;

  Simulation(const Incarnations& calls, std::uint64_t seed, RingRailOptions options)
      : calls_(calls), ranks_(static_cast<int>(calls.at(0).size())), random_(seed), network_(ranks_, seed) {
    for (int rank = 0; rank < ranks_; ++rank)
      hosts_.push_back(
          std::make_unique<SimulatedRank>(rank, ranks_, network_.transport(rank), options, nullptr));
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
    const std::uint32_t first = hosts_[rank]->submit(calls, network_.now());
    if (incarnation_ + 1 == calls_.size()) return;
    soon(2 * kMillisecond, [this, rank, first, &calls] {
      for (const std::uint32_t op_index : hosts_[rank]->halt(network_.now())) {
        const Array& output = calls[op_index - first].output;
        std::fill_n(bytes_of(output), output.nbytes(), static_cast<std::byte>(kReused));
      }
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
  nb::module_ sub =
      rig_submodule(m, "collectives", "Reduce kernels, and collectives over a simulated network");
  nb::class_<Call>(sub, "Call", "One collective of one rank, or the part (offset, count) of it")
      .def(nb::init<DType, ReduceOp, ConstArray, Array, Collective, std::uint16_t,
                    std::optional<std::pair<std::size_t, std::size_t>>>(),
           "dtype"_a, "op"_a, "input"_a, "output"_a, "collective"_a = Collective::kAllReduce, "root"_a = 0,
           "part"_a = nb::none());
  sub.def("reduce", &reduce_arrays, "dtype"_a, "op"_a, "into"_a, "low"_a, "high"_a,
          "into = op(low, high), element by element; AVG adds");
  sub.attr("REUSED") = kReused;
  sub.def("simulate", &simulate, "calls"_a, "seed"_a, "small_bytes"_a, "segment_bytes"_a, "bruck_bytes"_a = 0,
          "Run calls, by incarnation and rank, over a simulated network; all incarnations but the last are "
          "halted at random times, and outputs of what is not done then hold REUSED in every byte. Per rank: "
          "the op indices completed, in order, and the failure's message or None");
}

}  // namespace railweave
