// SPDX-License-Identifier: Apache-2.0
// railweave._native.ina.Rails: in-network rails on real sockets, driven by the calling thread; for tests and
// benchmarks.
#include "rails/ina_rail.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "arrays.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

/// Several hosts' rails on one loop. Waits release the GIL.
class PyRails final : public RailListener {
 public:
  std::size_t open(std::string address, std::string interface, std::uint64_t rate_bps) {
    const InaRailOptions options{
        .address = std::move(address), .interface = std::move(interface), .rate_bps = rate_bps};
    rails_.push_back(std::make_unique<InaRail>(loop_, options, *this));
    loop_.add_timed(*rails_.back());
    return rails_.size() - 1;
  }

  std::uint16_t port(std::size_t rail) const { return rails_.at(rail)->port(); }

  /// The trees of one rail: (group, virtual address, child).
  void attach(std::size_t rail,
              const std::vector<std::tuple<std::uint16_t, std::string, std::uint8_t>>& trees,
              std::uint32_t slots, std::uint32_t lanes, int world_size) {
    std::vector<InaGroup> groups;
    for (const auto& [group, address, child] : trees)
      groups.push_back({group, address, child, slots, lanes, world_size});
    rails_.at(rail)->attach(groups);
    world_size_ = world_size;
  }

  std::uint64_t pause(std::size_t rail, std::uint16_t group) {
    return rails_.at(rail)->pause(group, EventLoop::now());
  }

  void resume(std::size_t rail, std::uint16_t old_group, std::uint16_t group, std::string virtual_address,
              std::uint8_t child, std::uint32_t slots, std::uint32_t lanes, std::uint64_t resume_from) {
    rails_.at(rail)->resume(old_group, {group, std::move(virtual_address), child, slots, lanes, world_size_},
                            resume_from, EventLoop::now());
  }

  void start(std::size_t rail, std::uint32_t op_index, std::string_view op, ConstArray input, Array output) {
    check_alike(input, output);
    held_.emplace_back(input, output);
    rails_.at(rail)->start({.id = op_index,
                            .call = {.op_index = op_index,
                                     .collective = Collective::kAllReduce,
                                     .dtype = dtype_of(input),
                                     .op = op_of(op),
                                     .root = 0,
                                     .count = input.size()},
                            .input = bytes_of(input),
                            .output = bytes_of(output),
                            .count = input.size(),
                            .stride = 0,
                            .rank = static_cast<int>(rail),
                            .world_size = world_size_},
                           EventLoop::now());
    ++pending_;
  }

  /// Runs the loop until every slice is done; false after `timeout_s`. A failure raises RuntimeError.
  bool run(double timeout_s) {
    const Time until = EventLoop::now() + static_cast<Time>(timeout_s * kSecond);
    {
      nb::gil_scoped_release release;
      while (pending_ > 0 && failure_.empty() && EventLoop::now() < until) loop_.run_once(until);
    }
    if (!failure_.empty()) throw std::runtime_error(failure_);
    if (pending_ == 0) held_.clear();
    return pending_ == 0;
  }

  nb::dict stats(std::size_t rail) const {
    const RailStats stats = rails_.at(rail)->stats();
    nb::dict all;
    all["slices"] = stats.slices;
    all["payload_bytes"] = stats.payload_bytes;
    all["bytes_sent"] = stats.bytes_sent;
    all["bytes_received"] = stats.bytes_received;
    all["packets_sent"] = stats.packets_sent;
    all["packets_received"] = stats.packets_received;
    all["retransmissions"] = stats.retransmissions;
    all["duplicates"] = stats.duplicates;
    all["malformed"] = stats.malformed;
    nb::list trees;
    for (const GroupStats& group : rails_.at(rail)->groups()) {
      nb::dict tree;
      tree["group"] = group.group;
      tree["window"] = group.window;
      tree["rtt_ns"] = group.rtt;
      tree["timeouts"] = group.timeouts;
      tree["results"] = group.results;
      tree["duplicates"] = group.duplicates;
      tree["stale"] = group.stale;
      tree["moves"] = group.moves;
      trees.append(tree);
    }
    all["trees"] = trees;
    all["stalls"] = stalls_;
    return all;
  }

  void slice_done(std::uint64_t, Time) override { --pending_; }
  void stalled(const Stall&, Time) override { ++stalls_; }
  void rail_failed(const Failure& failure, Time) override { failure_ = failure.message; }

 private:
  EventLoop loop_;
  std::vector<std::unique_ptr<InaRail>> rails_;
  std::vector<std::pair<ConstArray, Array>> held_;
  std::size_t pending_ = 0;
  std::size_t stalls_ = 0;
  int world_size_ = 0;
  std::string failure_;
};

}  // namespace

void bind_ina_rail(nb::module_& ina) {
  nb::class_<PyRails>(ina, "Rails")
      .def(nb::init<>())
      .def("open", &PyRails::open, "address"_a, "interface"_a = "", "rate_bps"_a = 0,
           "Open a rail on this host's address; its index. RuntimeError says what is wrong.")
      .def("port", &PyRails::port, "rail"_a)
      .def("attach", &PyRails::attach, "rail"_a, "trees"_a, "slots"_a, "lanes"_a, "world_size"_a,
           "Join the trees: (group, virtual address, child) of each.")
      .def("pause", &PyRails::pause, "rail"_a, "group"_a, "Stop a tree; the position of this rank.")
      .def("resume", &PyRails::resume, "rail"_a, "old_group"_a, "group"_a, "virtual_address"_a, "child"_a,
           "slots"_a, "lanes"_a, "resume_from"_a, "Go on in another group.")
      .def("start", &PyRails::start, "rail"_a, "op_index"_a, "op"_a, "input"_a, "output"_a)
      .def("run", &PyRails::run, "timeout_s"_a,
           "Run until every slice is done; False after the timeout. RuntimeError when a rail fails.")
      .def("stats", &PyRails::stats, "rail"_a);
}

}  // namespace railweave
