// SPDX-License-Identifier: Apache-2.0
// railweave._native.load: the load generator of `railweave bench switch`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "bindings/values.hpp"
#include "load/generator.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave::load {

namespace {

constexpr unsigned kMostSegments = 128;  // what the kernel takes in one UDP_SEGMENT message
constexpr std::size_t kMostBytes = 65507;

nb::dict drive(const std::vector<int>& fds, unsigned lanes, unsigned segments, std::uint32_t slots,
               std::uint32_t first_round, double warm_up_s, double seconds) {
  if (slots == 0 || (slots & (slots - 1)) != 0) throw nb::value_error("slots must be a power of two");
  if (segments == 0 || segments > std::min(kMostSegments, slots) ||
      segments * (16 + 4 * lanes) > kMostBytes) {
    throw nb::value_error("segments must be 1 to 128, no more than slots, and fit into one IP packet");
  }
  const Group group{.slots = slots,
                    .first_round = first_round,
                    .lanes = lanes,
                    .workers = static_cast<unsigned>(fds.size())};
  Outcome outcome;
  {
    const nb::gil_scoped_release release;
    outcome = Generator(group, fds, segments).run(nanoseconds(warm_up_s), nanoseconds(seconds));
  }
  return RAILWEAVE_DICT(outcome, right, wrong, again, strangers, repeated, seconds);
}

}  // namespace

void bind_load(nb::module_& module) {
  nb::module_ m = module.def_submodule("load", "Load on a switch that runs the aggregation program");
  m.def("drive", &drive, "fds"_a, "lanes"_a, "segments"_a, "slots"_a, "first_round"_a, "warm_up_s"_a,
        "seconds"_a,
        "Contribute to group 1 over these connected UDP sockets (one per worker) in a closed loop of `slots` "
        "chunks, sent as super-packets of `segments`; counts of right, wrong and repeated contributions");
}

}  // namespace railweave::load
