// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.calls: the table of an agent's calls, and how they are cut again, for tests.
#include "agent/calls.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <limits>

#include "agent/recovery_driver.hpp"
#include "bindings/agent_values.hpp"
#include "rigs/rig.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

using ConstArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Array = nb::ndarray<nb::c_contig, nb::device::cpu>;
using View = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

// The bytes of a slice in one shard, or in the whole tensor if this side is not sharded.
View view(const Slice& slice, const std::byte* from, std::size_t shard) {
  const std::size_t item = item_size(slice.call.dtype);
  auto* data = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(from)) + shard * slice.stride * item;
  return View(data, {slice.count * item}, nb::handle());
}

// A rank's calls. Results are delivered to callers at once, or when a test asks for delivery.
class PythonCalls : public Calls {
 public:
  PythonCalls(int rank, int world_size, std::vector<std::uint64_t> rates) : Calls(rank, world_size) {
    for (std::size_t rail = 0; rail < rates.size(); ++rail) add_rail();
    keep(std::move(rates));
  }

  std::uint32_t submit(const CallDescription& call, const ConstArray& input, const Array& output,
                       const std::vector<Part>& parts, Duration expected, Time now) {
    const Submission submission{.call = call,
                                .input = static_cast<const std::byte*>(input.data()),
                                .output = static_cast<std::byte*>(output.data()),
                                .parts = parts,
                                .expected = expected};
    const std::uint32_t op_index = next();
    Memory memory = reserve(call);
    fill(submission, memory);
    Calls::submit(submission, std::move(memory), now);
    return op_index;
  }

  std::optional<Slice> take(std::size_t rail, bool repair) {
    return Calls::take({.rail = rail, .repair = repair}, next());
  }

  bool finish(std::size_t rail, bool repair, std::uint64_t id, Time now, bool deliver) {
    const auto finished = Calls::finish({.rail = rail, .repair = repair}, id, now);
    if (!finished) throw std::invalid_argument("not the channel's first slice");
    while (deliver && delivering()) this->deliver(std::numeric_limits<std::size_t>::max());
    return finished->last;
  }

  std::uint32_t deliver(std::size_t most) {
    const Delivery part = next_delivery(most);
    std::memcpy(part.to, part.from, part.bytes);
    delivered(part);
    return part.op_index;
  }
};

}  // namespace

void bind_calls(nb::module_& m) {
  nb::module_ sub =
      rig_submodule(m, "calls", "The calls of a rank, and how they are cut again after a rail has failed");
  sub.attr("REPAIR_BYTES") = kRepairBytes;
  nb::class_<Slice>(sub, "Slice", "What a rail would be given; the views show its memory, and do not keep it")
      .def(RAILWEAVE_RO(Slice, id, count))
      .def_prop_ro("op_index", [](const Slice& self) { return self.call.op_index; })
      .def_prop_ro("collective", [](const Slice& self) { return self.call.collective; })
      .def_prop_ro("root", [](const Slice& self) { return self.call.root; })
      .def(
          "input", [](const Slice& self, std::size_t shard) { return view(self, self.input, shard); },
          "shard"_a = 0, nb::rv_policy::reference)
      .def(
          "output", [](const Slice& self, std::size_t shard) { return view(self, self.output, shard); },
          "shard"_a = 0, nb::rv_policy::reference);
  nb::class_<Calls::Laggard>(sub, "Laggard", "A piece that is all that its call waits for")
      .def_ro("op_index", &Calls::Laggard::op_index)
      .def_ro("others_ns", &Calls::Laggard::others)
      .def_ro("expected_ns", &Calls::Laggard::expected)
      .def_ro("since_ns", &Calls::Laggard::since)
      .def_prop_ro("patience_ns", [](const Calls::Laggard& self) { return patience(self); });
  nb::class_<Calls::Front>(sub, "Front", "The piece that a channel's rail carries first")
      .def_ro("op_index", &Calls::Front::op_index)
      .def_ro("expected_ns", &Calls::Front::expected)
      .def_ro("alone", &Calls::Front::alone)
      .def_prop_ro("patience_ns", [](const Calls::Front& self) { return patience(self); });
  nb::class_<PythonCalls>(sub, "Calls", "An agent's calls, without an agent")
      .def(nb::init<int, int, std::vector<std::uint64_t>>(), "rank"_a, "world_size"_a, "rates"_a,
           "`rates`: of the rails, as enable_recovery takes them")
      .def("submit", &PythonCalls::submit, "call"_a, "input"_a, "output"_a, "parts"_a, "expected_ns"_a = 0,
           "now_ns"_a = 0, nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(), "The call's op index")
      .def("take", &PythonCalls::take, "rail"_a, "repair"_a, "The channel's next slice")
      .def("finish", &PythonCalls::finish, "rail"_a, "repair"_a, "id"_a, "now_ns"_a = 0, "deliver"_a = true,
           "Whether the call's result is there now")
      .def("deliver", &PythonCalls::deliver, "most"_a,
           "Copy at most so many bytes of the oldest result to its caller; the call's op index")
      .def_prop_ro("delivering", &PythonCalls::delivering)
      .def("laggard", &PythonCalls::laggard, "rail"_a)
      .def(
          "front",
          [](const PythonCalls& self, std::size_t rail, bool repair) {
            return self.front({.rail = rail, .repair = repair});
          },
          "rail"_a, "repair"_a)
      .def("prepare", &PythonCalls::prepare, "alive"_a,
           "Begin nothing movable until `apply`; how far this rank is")
      .def("apply", &PythonCalls::apply, "commit"_a)
      .def("release", &PythonCalls::release, "op_index"_a)
      .def_prop_ro("next", &PythonCalls::next)
      .def_prop_ro("completed", &PythonCalls::completed)
      .def_prop_ro("kept_bytes", &PythonCalls::kept_bytes)
      .def_prop_ro("kept_calls", &PythonCalls::kept_calls)
      .def("pending", &PythonCalls::pending, "op_index"_a);
}

}  // namespace railweave
