// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.ina: the in-network endpoint and its parts, for tests.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bindings/values.hpp"
#include "ina/call.hpp"
#include "ina/endpoint.hpp"
#include "ina/exact.hpp"
#include "ina/fixed_point.hpp"
#include "ina/packet.hpp"
#include "ina/seal.hpp"
#include "rigs/arrays.hpp"
#include "rigs/rig.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {
namespace {

/// An endpoint. It keeps its arrays alive while it uses them.
class PyEndpoint : public ina::Endpoint {
 public:
  explicit PyEndpoint(const ina::EndpointOptions& options)
      : Endpoint(options), world_size_(options.world_size) {}

  void start(std::uint32_t op_index, std::string_view op, ConstArray input, Array output,
             std::optional<std::uint64_t> count) {
    check_alike(input, output);
    start_part(op_index, op, input, output, Collective::kAllReduce, 0, 0, count.value_or(input.size()), 0,
               input.size());
  }

  /// Starts `count` elements from `offset`, of the tensor or of each shard, of a collective of rank `rank`.
  void start_part(std::uint32_t op_index, std::string_view op, ConstArray input, Array output,
                  Collective collective, std::uint16_t root, int rank, std::uint64_t whole,
                  std::size_t offset, std::size_t count) {
    const std::size_t skipped = offset * input.itemsize();
    Endpoint::start({.id = op_index,
                     .call = {.op_index = op_index,
                              .collective = collective,
                              .dtype = carried_dtype(input),
                              .op = op_of(op),
                              .root = root,
                              .count = whole},
                     .input = bytes_of(input) + skipped,
                     .output = bytes_of(output) + skipped,
                     .count = count,
                     .stride = is_sharded(collective) ? whole : 0,
                     .rank = rank,
                     .world_size = world_size_});
    held_.emplace(op_index, std::pair(input, output));
  }

  /// Also releases the arrays.
  void halt() {
    Endpoint::halt();
    held_.clear();
  }

  void receive(const nb::bytes& datagram, Time now) { Endpoint::receive(view(datagram), now); }

  std::optional<nb::bytes> transmit(Time now) {
    const Bytes datagram = Endpoint::transmit(now);
    return datagram.empty() ? std::nullopt : std::optional(to_python(datagram));
  }

  /// Returns None, the op index of a complete slice, a stall or a failure.
  nb::object poll() {
    const auto event = Endpoint::poll();
    if (!event) return nb::none();
    if (const auto* failure = std::get_if<Failure>(&*event)) {
      static constexpr const char* kKinds[] = {"peer_lost", "mismatch", "rail_down", "internal", "silent"};
      return nb::make_tuple(kKinds[static_cast<int>(failure->kind)], failure->message);
    }
    if (const auto* stalled = std::get_if<ina::Stalled>(&*event))
      return stalled->spoilt ? nb::make_tuple("stalled", "spoilt")
                             : nb::make_tuple("stalled", stalled->first_switch_ok, stalled->root_ok);
    const auto op_index = static_cast<std::uint32_t>(std::get<ina::SliceDone>(*event).id);
    held_.erase(op_index);
    return nb::int_(op_index);
  }

  nb::dict stats() const {
    static constexpr const char* kRefused[] = {"short", "version", "kind", "group", "child", "length",
                                               "slot",  "unsent",  "op",   "mark",  "seal"};
    const ina::EndpointStats& stats = Endpoint::stats();
    nb::dict refused;
    for (std::size_t i = 0; i < ina::kRefusals; ++i) refused[kRefused[i]] = stats.refused[i];
    nb::dict all = RAILWEAVE_DICT(stats, contributions, retransmissions, early_retransmissions, timeouts,
                                  results, duplicates, spurious, stale, moves, stalls, probes_sent,
                                  probes_answered, nonfinite_chunks, error_bound);
    all["refused"] = refused;
    all["in_flight"] = in_flight();
    all["window"] = window().size();
    all["rtt_ns"] = window().smoothed_rtt();
    return all;
  }

 private:
  int world_size_;
  std::multimap<std::uint32_t, std::pair<ConstArray, Array>> held_;
};

template <typename Fill>
nb::bytes filled(std::size_t size, Fill fill) {
  std::string bytes(size, '\0');
  fill(reinterpret_cast<std::byte*>(bytes.data()));
  return nb::bytes(bytes.data(), bytes.size());
}

void bind_constants(nb::module_& m) {
  m.attr("VERSION") = ina::kVersion;
  m.attr("UDP_PORT") = ina::kUdpPort;
  m.attr("SLOTS") = ina::kSlots;
  m.attr("MAX_CHILDREN") = ina::kMaxChildren;
  m.attr("MAX_WORLD_SIZE") = ina::kMaxWorldSize;
  m.attr("OP_MAX") = static_cast<int>(ina::WireOp::kMax);
  m.attr("FLAG_NONFINITE") = ina::flag::kNonfinite;
  m.attr("FLAG_OVERFLOW") = ina::flag::kOverflow;
  m.attr("FLAG_MISMATCH") = ina::flag::kMismatch;
  m.attr("FLAG_OWNER") = ina::flag::kOwner;
  m.attr("FLAG_LAST") = ina::flag::kLast;
}

void check_floats(const ConstArray& values, int exponent) {
  if (dtype_of(values) != DType::kFloat32) throw nb::type_error("float32 expected");
  if (exponent < ina::kMinExponent || exponent > ina::kMaxExponent)
    throw nb::value_error("exponent must be 1 to 254");
}

/// Lanes as bytes in network order, values as bytes in host order: numpy.frombuffer reads both.
void bind_fixed_point(nb::module_& m) {
  m.def("headroom_bits", [](int world_size) {
    if (world_size < 1 || world_size > ina::kMaxWorldSize) throw nb::value_error("world size 1 to 1023");
    return ina::headroom_bits(world_size);
  });
  m.def("scan", [](ConstArray values) {
    check_floats(values, ina::kMinExponent);
    const auto found = ina::scan(bytes_of(values), values.size());
    return std::pair(found.exponent, found.finite);
  });
  m.def("quantise", [](ConstArray values, int exponent, int headroom) {
    check_floats(values, exponent);
    return filled(4 * values.size(), [&](std::byte* lanes) {
      ina::quantise(bytes_of(values), values.size(), exponent, headroom, lanes);
    });
  });
  m.def("quantise_finite", [](ConstArray values, int exponent, int headroom) {
    check_floats(values, exponent);
    std::vector<std::uint8_t> classes(values.size());
    nb::bytes lanes = filled(4 * values.size(), [&](std::byte* to) {
      ina::quantise_finite(bytes_of(values), values.size(), exponent, headroom, to, classes.data());
    });
    return nb::make_tuple(lanes, nb::bytes(classes.data(), classes.size()));
  });
  m.def("dequantise", [](const nb::bytes& lanes, int exponent, int headroom) {
    return filled(lanes.size(), [&](std::byte* floats) {
      ina::dequantise(view(lanes).data(), lanes.size() / 4, exponent, headroom, floats);
    });
  });
  m.def("dequantise_mean", [](const nb::bytes& lanes, int exponent, int headroom, int world_size) {
    return filled(lanes.size(), [&](std::byte* floats) {
      ina::dequantise_mean(view(lanes).data(), lanes.size() / 4, exponent, headroom, world_size, floats);
    });
  });
  m.def("encode_classes", [](const nb::bytes& classes) {
    return filled(4 * classes.size(), [&](std::byte* lanes) {
      ina::encode_classes(static_cast<const std::uint8_t*>(classes.data()), classes.size(), lanes);
    });
  });
}

void bind_exact(nb::module_& m) {
  m.def("encode_exact", [](ConstArray values, int world_size) {
    check_floats(values, ina::kMinExponent);
    return filled(4 * ina::exact_lanes(world_size) * values.size(), [&](std::byte* lanes) {
      ina::encode_exact(bytes_of(values), values.size(), world_size, lanes);
    });
  });
  m.def("decode_exact", [](const nb::bytes& lanes, int world_size, int divisor, bool to_odd) {
    const std::size_t count = lanes.size() / 4 / ina::exact_lanes(world_size);
    return filled(4 * count, [&](std::byte* floats) {
      ina::decode_exact(view(lanes).data(), count, world_size, divisor, to_odd, floats);
    });
  });
  m.def("encode_wide", [](ConstArray values, int world_size) -> std::optional<nb::bytes> {
    check_floats(values, ina::kMinExponent);
    bool held = false;
    nb::bytes lanes = filled(4 * ina::kWideLanes * values.size(), [&](std::byte* to) {
      held = ina::encode_wide(bytes_of(values), values.size(), world_size, to);
    });
    if (!held) return std::nullopt;
    return lanes;
  });
  m.def("decode_wide", [](const nb::bytes& lanes, int world_size, int divisor, bool to_odd) {
    const std::size_t count = lanes.size() / 4 / ina::kWideLanes;
    return filled(4 * count, [&](std::byte* floats) {
      ina::decode_wide(view(lanes).data(), count, world_size, divisor, to_odd, floats);
    });
  });
}

void bind_endpoint(nb::module_& m) {
  nb::class_<PyEndpoint>(m, "Endpoint")
      .def(
          "__init__",
          [](PyEndpoint* self, std::uint16_t group, std::uint8_t child, std::uint32_t slots,
             std::uint32_t lanes, int world_size, std::uint32_t window, std::uint32_t reorder,
             Duration packet_time, Duration stall_after, std::optional<nb::bytes> secret, int rank,
             Duration redo_within, Duration longest_wait) {
            ina::EndpointOptions options{
                .group = group, .child = child, .slots = slots, .lanes = lanes, .world_size = world_size};
            options.window.initial = window;
            options.window.packet_time = packet_time;
            options.reorder = reorder;
            options.stall_after = stall_after;
            options.redo_within = redo_within;
            options.window.longest_wait = longest_wait;
            if (secret) options.seal = {.secret = secret_of(*secret), .tree = 0, .rank = rank};
            new (self) PyEndpoint(options);
          },
          nb::kw_only(), "group"_a, "child"_a, "slots"_a, "lanes"_a, "world_size"_a,
          "window"_a = ina::WindowOptions{}.initial, "reorder"_a = 4, "packet_time"_a = 0,
          "stall_after"_a = 300 * kMillisecond, "secret"_a = nb::none(), "rank"_a = 0, "redo_within"_a = 0,
          "longest_wait"_a = 0)
      .def("start", &PyEndpoint::start, "op_index"_a, "op"_a, "input"_a, "output"_a, "count"_a = nb::none())
      .def("start_part", &PyEndpoint::start_part, "op_index"_a, "op"_a, "input"_a, "output"_a, "collective"_a,
           "root"_a, "rank"_a, "whole"_a, "offset"_a, "count"_a,
           "A part of a collective: `count` elements from `offset` on, of the tensor or of each shard, which "
           "has `whole` elements")
      .def("receive", &PyEndpoint::receive, "datagram"_a, "now"_a)
      .def("transmit", &PyEndpoint::transmit, "now"_a, "The next datagram to send now, or None.")
      .def(
          "deadline", [](PyEndpoint& self) { return or_none(self.deadline()); },
          "When `expire` wants to be called, or None.")
      .def("expire", &PyEndpoint::expire, "now"_a)
      .def("poll", &PyEndpoint::poll,
           "None, the op index of a slice that is done, (kind, message) of a failure, (\"stalled\", whether "
           "the first switch answers, whether the root does), or (\"stalled\", \"spoilt\") where the switch "
           "has a wrong sum.")
      .def("halt", &PyEndpoint::halt, "Drop all slices, and send and take nothing until `restart`.")
      .def("next_chunk", &PyEndpoint::next_chunk, "Beyond all chunks that were sent, over all groups.")
      .def("restart", &PyEndpoint::restart, "base"_a, "now"_a,
           "Go on at the greatest next chunk of all ranks.")
      .def("pause", &PyEndpoint::pause, "now"_a,
           "Send and take nothing until `resume`; the lowest chunk without a result.")
      .def(
          "resume",
          [](PyEndpoint& self, std::uint16_t group, std::uint8_t child, std::uint32_t slots,
             std::uint32_t lanes, std::uint64_t resume_from, Time now) {
            self.resume({.group = group, .child = child, .slots = slots, .lanes = lanes}, resume_from, now);
          },
          nb::kw_only(), "group"_a, "child"_a, "slots"_a, "lanes"_a, "resume_from"_a, "now"_a,
          "Go on in another group, from the least position of all ranks.")
      .def("abort", &PyEndpoint::abort)
      .def_prop_ro("group", &PyEndpoint::group)
      .def_prop_ro("position", &PyEndpoint::position)
      .def_prop_ro("idle", &PyEndpoint::idle)
      .def("stats", &PyEndpoint::stats);
}

/// Lanes of whole packets as bytes, in network order.
void bind_seal(nb::module_& m) {
  m.def("seal_primes", &ina::seal_primes, "world_size"_a);
  nb::class_<ina::Counts>(m, "Counts")
      .def(nb::init<std::uint32_t, std::uint32_t, std::uint32_t>(), "agreeing"_a = 0, "nonfinite"_a = 0,
           "overflowing"_a = 0)
      .def_ro("agreeing", &ina::Counts::agreeing)
      .def_ro("nonfinite", &ina::Counts::nonfinite)
      .def_ro("overflowing", &ina::Counts::overflowing);
  nb::class_<ina::Seal>(m, "Seal")
      .def(
          "__init__",
          [](ina::Seal* self, const nb::bytes& secret, std::uint64_t tree, int rank, int world_size,
             std::uint32_t lanes) { new (self) ina::Seal(secret_of(secret), tree, rank, world_size, lanes); },
          "secret"_a, "tree"_a, "rank"_a, "world_size"_a, "lanes"_a)
      .def("mark", &ina::Seal::mark, "chunk"_a, "identity"_a)
      .def("by_member", &ina::Seal::by_member, "chunk"_a, "mark"_a)
      .def(
          "close",
          [](const ina::Seal& self, const nb::bytes& data, const ina::Counts& counts, std::uint64_t chunk,
             std::uint64_t bound) {
            return filled(data.size() + ina::kSealLanes * ina::kLaneBytes, [&](std::byte* lanes) {
              std::ranges::copy(view(data), lanes);
              self.close(lanes, counts, self.pads(chunk, bound));
            });
          },
          "data"_a, "counts"_a, "chunk"_a, "bound"_a, "The data lanes, and the seal behind them.")
      .def(
          "holds",
          [](const ina::Seal& self, const nb::bytes& lanes, std::uint64_t chunk, std::uint64_t bound,
             bool without_own) {
            return self.holds(view(lanes).data(), self.pads(chunk, bound), without_own);
          },
          "lanes"_a, "chunk"_a, "bound"_a, "without_own"_a = false)
      .def(
          "counts",
          [](const ina::Seal& self, const nb::bytes& lanes) { return self.counts(view(lanes).data()); },
          "lanes"_a);
}

}  // namespace

void bind_ina(nb::module_& m) {
  nb::module_ ina = rig_submodule(m, "ina", "The in-network endpoint and its parts");
  bind_constants(ina);
  bind_fixed_point(ina);
  bind_exact(ina);
  bind_seal(ina);
  bind_endpoint(ina);
}

}  // namespace railweave
