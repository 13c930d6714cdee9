// SPDX-License-Identifier: Apache-2.0
// railweave._native.ina: in-network packets for tools, and limits of the rail.
#include <nanobind/nanobind.h>
#include <nanobind/operators.h>

#include <algorithm>
#include <array>

#include "bindings/values.hpp"
#include "ina/call.hpp"
#include "ina/exact.hpp"
#include "ina/fixed_point.hpp"
#include "ina/packet.hpp"
#include "ina/seal.hpp"
#include "spread/task.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

void bind_header(nb::module_& m) {
  nb::class_<ina::Header>(m, "Header")
      .def(nb::init<std::uint8_t, std::uint8_t, std::uint8_t, std::uint16_t, std::uint8_t, std::uint8_t,
                    std::uint16_t, std::uint32_t, std::uint32_t>(),
           nb::kw_only(), "version"_a = ina::kVersion, "kind"_a = 0, "op"_a = 0, "group"_a = 0, "child"_a = 0,
           "flags"_a = 0, "slot"_a = 0, "round"_a = 0, "mark"_a = 0)
      .def(RAILWEAVE_RW(ina::Header, version, kind, op, group, child, flags, slot, round, mark))
      .def(nb::self == nb::self)
      .def("encode",
           [](const ina::Header& header) {
             std::array<std::byte, ina::kHeaderBytes> bytes;
             encode(header, bytes.data());
             return to_python(bytes);
           })
      .def_static("decode", [](const nb::bytes& bytes) {
        if (bytes.size() < ina::kHeaderBytes) throw nb::value_error("a header has 16 bytes");
        return ina::decode(view(bytes).data());
      });
}

}  // namespace

void bind_ina(nb::module_& m) {
  nb::module_ ina = m.def_submodule("ina", "In-network aggregation: packets, and limits of the rail");
  ina.attr("HEADER_BYTES") = ina::kHeaderBytes;
  ina.attr("SEAL_LANES") = ina::kSealLanes;
  ina.attr("WIDE_LANES") = ina::kWideLanes;
  ina.attr("LEAST_SPREAD_CHUNKS") = ina::kLeastSpread;
  ina.attr("SPREAD_CODE_BYTES") = spread::kCodeBytes;
  bind_header(ina);
  ina.def("exact_lanes", [](int world_size) {
    if (world_size < 1 || world_size > ina::kMaxWorldSize) throw nb::value_error("world size 1 to 1023");
    return ina::exact_lanes(world_size);
  });
  ina.def(
      "spreads",
      [](Collective collective, DType dtype, std::size_t count, int world_size, std::uint32_t lanes,
         std::size_t trees) {
        Slice slice{};
        slice.call.collective = collective;
        slice.call.dtype = dtype;
        slice.count = count;
        slice.world_size = world_size;
        slice.count = std::min(count, ina::tree_elements(slice, lanes, trees));
        return ina::spreads(slice, lanes);
      },
      "collective"_a, "dtype"_a, "count"_a, "world_size"_a, "lanes"_a, "trees"_a,
      "Whether so many elements (of a shard, where there are shards) are multicast on such trees.");
}

}  // namespace railweave
