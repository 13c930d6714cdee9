// SPDX-License-Identifier: Apache-2.0
// railweave._native.calls: the table of an agent's calls, and how they are cut again, for tests.
#include "agent/calls.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <limits>
#include <tuple>

#include "agent/recovery_driver.hpp"

namespace nb = nanobind;

namespace railweave {
namespace {

using ConstArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Array = nb::ndarray<nb::c_contig, nb::device::cpu>;
using View = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
using Parts = std::vector<std::tuple<std::size_t, std::size_t, std::size_t>>;

std::vector<Part> native(const Parts& parts) {
  std::vector<Part> converted;
  for (const auto& [rail, offset, count] : parts)
    converted.push_back({.rail = rail, .offset = offset, .count = count});
  return converted;
}

// The bytes that a slice has of one shard; of the only one where the side is not sharded.
View view(const Slice& slice, const std::byte* from, std::size_t shard) {
  const std::size_t item = item_size(slice.call.dtype);
  auto* data = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(from)) + shard * slice.stride * item;
  return View(data, {slice.count * item}, nb::handle());
}

// A rank's calls; results are delivered to their callers as soon as they are there, or where a test says so.
class PythonCalls {
 public:
  PythonCalls(int rank, int world_size, std::vector<std::uint64_t> rates) : calls_(rank, world_size) {
    for (std::size_t rail = 0; rail < rates.size(); ++rail) calls_.add_rail();
    calls_.keep(std::move(rates));
  }

  std::uint32_t submit(const CallDescription& call, const ConstArray& input, const Array& output,
                       const Parts& parts, Duration expected, Time now) {
    const std::vector<Part> cut = native(parts);
    const Submission submission{.call = call,
                                .input = static_cast<const std::byte*>(input.data()),
                                .output = static_cast<std::byte*>(output.data()),
                                .parts = cut,
                                .expected = expected};
    const std::uint32_t op_index = calls_.next();
    Calls::Memory memory = calls_.reserve(call);
    calls_.fill(submission, memory);
    calls_.submit(submission, std::move(memory), now);
    return op_index;
  }

  std::optional<Slice> take(std::size_t rail, bool repair) {
    return calls_.take({.rail = rail, .repair = repair}, calls_.next());
  }

  bool finish(std::size_t rail, bool repair, std::uint64_t id, Time now, bool deliver) {
    const auto finished = calls_.finish({.rail = rail, .repair = repair}, id, now);
    if (!finished) throw std::invalid_argument("not the channel's first slice");
    while (deliver && calls_.delivering()) this->deliver(std::numeric_limits<std::size_t>::max());
    return finished->last;
  }

  std::uint32_t deliver(std::size_t most) {
    const Calls::Delivery part = calls_.next_delivery(most);
    std::memcpy(part.to, part.from, part.bytes);
    calls_.delivered(part);
    return part.op_index;
  }

  Calls& calls() { return calls_; }

 private:
  Calls calls_;
};

}  // namespace

void bind_calls(nb::module_& m) {
  nb::module_ sub =
      m.def_submodule("calls", "The calls of a rank, and how they are cut again after a rail has failed");
  sub.attr("REPAIR_BYTES") = kRepairBytes;
  nb::class_<Slice>(sub, "Slice", "What a rail would be given; the views show its memory, and do not keep it")
      .def_ro("id", &Slice::id)
      .def_ro("count", &Slice::count)
      .def_prop_ro("op_index", [](const Slice& self) { return self.call.op_index; })
      .def_prop_ro("collective", [](const Slice& self) { return self.call.collective; })
      .def_prop_ro("root", [](const Slice& self) { return self.call.root; })
      .def(
          "input", [](const Slice& self, std::size_t shard) { return view(self, self.input, shard); },
          nb::arg("shard") = 0, nb::rv_policy::reference)
      .def(
          "output", [](const Slice& self, std::size_t shard) { return view(self, self.output, shard); },
          nb::arg("shard") = 0, nb::rv_policy::reference);
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
      .def(nb::init<int, int, std::vector<std::uint64_t>>(), nb::arg("rank"), nb::arg("world_size"),
           nb::arg("rates"), "`rates`: of the rails, as enable_recovery takes them")
      .def("submit", &PythonCalls::submit, nb::arg("call"), nb::arg("input"), nb::arg("output"),
           nb::arg("parts"), nb::arg("expected_ns") = 0, nb::arg("now_ns") = 0, nb::keep_alive<1, 3>(),
           nb::keep_alive<1, 4>(), "The call's op index")
      .def("take", &PythonCalls::take, nb::arg("rail"), nb::arg("repair"), "The channel's next slice")
      .def("finish", &PythonCalls::finish, nb::arg("rail"), nb::arg("repair"), nb::arg("id"),
           nb::arg("now_ns") = 0, nb::arg("deliver") = true, "Whether the call's result is there now")
      .def("deliver", &PythonCalls::deliver, nb::arg("most"),
           "Copy at most so many bytes of the oldest result to its caller; the call's op index")
      .def_prop_ro("delivering", [](PythonCalls& self) { return self.calls().delivering(); })
      .def(
          "laggard", [](PythonCalls& self, std::size_t rail) { return self.calls().laggard(rail); },
          nb::arg("rail"))
      .def(
          "front",
          [](PythonCalls& self, std::size_t rail, bool repair) {
            return self.calls().front({.rail = rail, .repair = repair});
          },
          nb::arg("rail"), nb::arg("repair"))
      .def("position", [](PythonCalls& self) { return self.calls().position(); })
      .def(
          "apply", [](PythonCalls& self, const recovery::Commit& commit) { self.calls().apply(commit); },
          nb::arg("commit"))
      .def(
          "release", [](PythonCalls& self, std::uint32_t op) { self.calls().release(op); },
          nb::arg("op_index"))
      .def_prop_ro("next", [](PythonCalls& self) { return self.calls().next(); })
      .def_prop_ro("completed", [](PythonCalls& self) { return self.calls().completed(); })
      .def_prop_ro("kept_bytes", [](PythonCalls& self) { return self.calls().kept_bytes(); })
      .def_prop_ro("kept_calls", [](PythonCalls& self) { return self.calls().kept_calls(); })
      .def(
          "pending", [](PythonCalls& self, std::uint32_t op) { return self.calls().pending(op); },
          nb::arg("op_index"));
}

}  // namespace railweave
