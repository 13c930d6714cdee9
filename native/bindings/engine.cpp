// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "bindings/values.hpp"
#include "engine/hash.hpp"
#include "engine/isa.hpp"
#include "engine/vectors.hpp"
#include "loop/thread.hpp"

namespace nb = nanobind;
using namespace nb::literals;

RAILWEAVE_TUPLE(railweave::engine::CounterValue, packets, bytes)
RAILWEAVE_TUPLE(railweave::engine::MeterRate, tokens_per_us, burst)
RAILWEAVE_TUPLE(railweave::engine::KeyRange, word, shift, width, low, high)
RAILWEAVE_TUPLE(railweave::engine::Choice, action, parameters)
RAILWEAVE_TUPLE(railweave::engine::Replica, port, instance)
RAILWEAVE_TUPLE(railweave::engine::NotedValue, words, negative)
RAILWEAVE_TUPLE(railweave::engine::LogRecord, message, values)
RAILWEAVE_TUPLE(railweave::engine::TraceEvent, kind, what, values)
RAILWEAVE_TUPLE(railweave::engine::OutputBacklog, packets, wait_us)

namespace railweave::engine {
namespace {

using Words = std::vector<std::uint64_t>;
/// One (list, bytes) tuple per item.
nb::list list_of(const std::deque<Notices::Item>& items) {
  nb::list list;
  for (const auto& item : items) list.append(nb::make_tuple(item.list, to_python(item.bytes)));
  return list;
}

/// Collects output, for tests and simulations. All ports have the same backlog and the same state.
struct Collector : OutputSink {
  OutputBacklog waiting;
  bool busy = false;
  std::vector<std::pair<std::uint16_t, std::vector<std::byte>>> packets;
  OutputBacklog backlog(std::uint16_t, std::size_t) const override { return waiting; }
  bool ready(std::uint16_t) override { return !busy; }
  void emit(std::uint16_t port, const Pieces& packet) override {
    packets.emplace_back(port, std::vector<std::byte>(packet.size()));
    packet.write(packets.back().second.data());
  }
  nb::list to_python() const {
    nb::list list;
    for (const auto& [to, bytes] : packets) list.append(nb::make_tuple(to, railweave::to_python(bytes)));
    return list;
  }
};

/// Counts output, for the benchmark.
struct Counter : OutputSink {
  std::uint64_t packets = 0;
  void emit(std::uint16_t, const Pieces&) override { ++packets; }
};

nb::list inject(Engine& engine, std::uint16_t port, const nb::bytes& packet, std::uint64_t now_us,
                OutputBacklog backlog, bool busy) {
  Collector out;
  out.waiting = backlog;
  out.busy = busy;
  {
    const nb::gil_scoped_release unlocked;  // the thread that froze the engine may need the GIL
    if (busy) engine.control()->egress_queues = true;
    const auto guard = engine.traffic();
    engine.process(port, view(packet), now_us, out);
  }
  return out.to_python();
}

nb::list release(Engine& engine, std::uint16_t port, std::uint64_t now_us, bool busy) {
  Collector out;
  out.busy = busy;
  const auto guard = engine.traffic();
  engine.release(port, now_us, out);
  return out.to_python();
}

/// Processes the (port, packet) list `rounds` times. Returns nanoseconds of processor time and packets
/// emitted.
std::pair<double, std::uint64_t> benchmark(Engine& engine,
                                           const std::vector<std::pair<std::uint16_t, nb::bytes>>& packets,
                                           std::uint32_t rounds) {
  Counter out;
  const auto guard = engine.traffic();
  const Time begin = thread_time();
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (const auto& [port, packet] : packets) engine.process(port, view(packet), round, out);
  }
  return {static_cast<double>(thread_time() - begin), out.packets};
}

inline constexpr std::uint64_t kCellsAtOnce = 4096;  // of an array; packets may pass between two blocks

/// Binds a table operation of the control plane. Its first argument is the table's number.
template <typename R, typename... Args>
auto on_table(R (Table::*work)(Args...)) {
  return [work](Engine& self, std::uint32_t table, Args... args) -> R {
    const auto state = self.control();
    return (state->table(table).*work)(std::move(args)...);
  };
}

/// Calls work(state, first, count) for one block after the other.
template <typename Work>
void in_blocks(Engine& engine, std::uint64_t first, std::uint64_t count, const Work& work) {
  for (const std::uint64_t end = first + count; first < end;) {
    const std::uint64_t cells = std::min(end - first, kCellsAtOnce);
    const auto state = engine.control();
    work(*state.operator->(), first, cells);
    first += cells;
  }
}

nb::bytes read_registers(Engine& self, std::uint32_t array, std::uint64_t first, std::uint64_t count) {
  std::vector<std::byte> cells;
  {
    const nb::gil_scoped_release unlocked;
    const std::size_t size = self.control()->cells.register_bytes(array);
    cells.resize(count * size);
    std::span<std::byte> rest(cells);
    in_blocks(self, first, count, [&](State& state, std::uint64_t from, std::uint64_t block) {
      state.cells.read_registers(array, from, rest.first(block * size));
      rest = rest.subspan(block * size);
    });
  }
  return to_python(cells);
}

void write_registers(Engine& self, std::uint32_t array, std::uint64_t first, const nb::bytes& cells) {
  Bytes rest = view(cells);
  const nb::gil_scoped_release unlocked;
  const std::size_t size = self.control()->cells.register_bytes(array);
  in_blocks(self, first, rest.size() / size, [&](State& state, std::uint64_t from, std::uint64_t block) {
    state.cells.write_registers(array, from, rest.first(block * size));
    rest = rest.subspan(block * size);
  });
}

/// How values of a plan are packed. A number: its format, as in Python's struct. A list: [item layout],
/// packed after the count. An array: (item layout, count). A struct: {field: layout}.
template <typename T>
nb::object layout(const T&) {
  if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return nb::str(sizeof(T) == 8 ? "Q" : sizeof(T) == 4 ? "I" : "H");
  } else if constexpr (requires { typename T::value_type; }) {
    nb::list items;
    items.append(layout(typename T::value_type{}));
    if constexpr (requires(T list) { list.emplace_back(); }) return items;
    return nb::make_tuple(items[0], T{}.size());
  } else {
    nb::dict fields;
    std::size_t i = 0;
    const nb::list names = nb::list(nb::str(T::kFieldNames).attr("split")(", "));
    std::apply([&](const auto&... field) { ((fields[names[i++]] = layout(field)), ...); }, T{}.fields());
    return fields;
  }
}

template <std::size_t n>
nb::list list_of(const char* const (&names)[n]) {
  nb::list list;
  for (const char* name : names) list.append(name);
  return list;
}

}  // namespace

void bind_engine(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("engine", "The embedded P4 engine");
  nb::exception<InvalidPlan>(m, "InvalidPlan", PyExc_ValueError);

  nb::dict ops;
  for (std::size_t i = 0; i < static_cast<std::size_t>(Op::kCount); ++i) {
    ops[kOps[i].name] = nb::make_tuple(i, kOps[i].signature);
  }
  m.attr("OPS") = ops;  // name -> (number, signature): see native/engine/isa.hpp
  m.attr("ALGORITHMS") = list_of(kAlgorithmNames);
  m.attr("MATCH_KINDS") = list_of(kMatchKinds);
  m.attr("INPUT_KINDS") = list_of(InputPlan::kKinds);
#define X(name, enumerator) name,
  m.attr("INTRINSICS") = list_of({RAILWEAVE_INTRINSICS(X)});
  m.attr("CORE_ERRORS") = list_of({RAILWEAVE_CORE_ERRORS(X)});
  m.attr("TRACE_KINDS") = list_of({RAILWEAVE_TRACE_KINDS(X)});
  m.attr("TRACE_REASONS") = list_of({RAILWEAVE_TRACE_REASONS(X)});
#undef X
  m.attr("PLAN_LAYOUT") = layout(Plan{});
  m.attr("MAX_TRACE_PACKETS") = kMaxTracePackets;
  m.attr("PLAN_MAGIC") = kPlanMagic;
  m.attr("LONG_WORDS") = vectors::kLongWords;
  m.attr("NONE") = kNone;
  m.attr("GROUP") = kGroup;
  m.attr("NO_PORT") = kNoPort;
  m.attr("DROP_PORT") = kDropPort;

  nb::class_<Engine>(m, "Engine", "Runs a plan; see railweave.switch.pipeline for the friendly face")
      .def(
          "__init__",
          [](Engine* self, const nb::bytes& plan) {
            const Bytes bytes = view(plan);
            const nb::gil_scoped_release unlocked;  // registers may be large
            new (self) Engine(bytes);
          },
          "plan"_a)
      .def("source", &Engine::source, nb::call_guard<nb::gil_scoped_release>(),
           "The plan as C++; empty if it is one that is only interpreted")
      .def("use", &Engine::use, "library"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Run the code of a library that was compiled of it; ValueError if that is another one's")
      .def("inject", &inject, "port"_a, "packet"_a, "now_us"_a = 0, "backlog"_a = OutputBacklog{},
           "busy"_a = false,
           "What leaves for this packet. While all ports are `busy`, packets wait for `release`")
      .def("release", &release, "port"_a, "now_us"_a, "busy"_a = false,
           "What leaves for the next packet that waits at a port. Copies wait while all ports are `busy`")
      .def("benchmark", &benchmark, "packets"_a, "rounds"_a)
      .def(
          "insert",
          [](Engine& self, std::uint32_t table, Words value, Words mask, std::vector<KeyRange> ranges,
             std::int64_t priority, std::uint32_t action, Words parameters) {
            return self.control()->insert(table,
                                          {std::move(value), std::move(mask), std::move(ranges), priority},
                                          action, std::move(parameters));
          },
          "table"_a, "value"_a, "mask"_a, "ranges"_a, "priority"_a, "action"_a, "parameters"_a)
      .def("modify", on_table(&Table::modify), "table"_a, "handle"_a, "action"_a, "parameters"_a)
      .def("remove", on_table(&Table::remove), "table"_a, "handle"_a)
      .def("set_default", on_table(&Table::set_default), "table"_a, "action"_a, "parameters"_a)
      .def("direct_counter",
           [](Engine& self, std::uint32_t table, std::uint64_t handle) {
             return self.control()->table(table).entry(handle).counter;
           })
      .def("set_direct_counter",
           [](Engine& self, std::uint32_t table, std::uint64_t handle, std::uint64_t packets,
              std::uint64_t bytes) { self.control()->table(table).entry(handle).counter = {packets, bytes}; })
      .def("set_direct_meter",
           [](Engine& self, std::uint32_t table, std::uint64_t handle, const std::vector<MeterRate>& rates) {
             self.control()->set_direct_meter(table, handle, rates);
           })
      .def(
          "counters",
          [](Engine& self, std::uint32_t counter, std::uint64_t first, std::uint64_t count) {
            std::vector<CounterValue> values;
            in_blocks(self, first, count, [&](State& state, std::uint64_t from, std::uint64_t cells) {
              for (const std::uint64_t end = from + cells; from < end; ++from) {
                values.push_back(state.cells.counters.at(counter).at(from));
              }
            });
            return values;
          },
          "counter"_a, "first"_a, "count"_a)
      .def(
          "set_counters",
          [](Engine& self, std::uint32_t counter, std::uint64_t first, std::uint64_t count,
             std::uint64_t packets, std::uint64_t bytes) {
            in_blocks(self, first, count, [&](State& state, std::uint64_t from, std::uint64_t cells) {
              for (const std::uint64_t end = from + cells; from < end; ++from) {
                state.cells.counters.at(counter).at(from) = {packets, bytes};
              }
            });
          },
          "counter"_a, "first"_a, "count"_a, "packets"_a, "bytes"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "set_meters",
          [](Engine& self, std::uint32_t meter, std::uint64_t first, std::uint64_t count,
             const std::vector<MeterRate>& rates) {
            in_blocks(self, first, count, [&](State& state, std::uint64_t from, std::uint64_t cells) {
              for (const std::uint64_t end = from + cells; from < end; ++from) {
                state.cells.set_meter(meter, from, rates, state.now_us);
              }
            });
          },
          "meter"_a, "first"_a, "count"_a, "rates"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("read_registers", &read_registers, "array"_a, "first"_a, "count"_a,
           "Cells in a row, whole bytes each, in network order")
      .def("write_registers", &write_registers, "array"_a, "first"_a, "cells"_a)
      .def("set_multicast",
           [](Engine& self, std::uint32_t group, Replicas replicas) {
             self.control()->replication.set_group(group, std::move(replicas));
           })
      .def("set_clone_session",
           [](Engine& self, std::uint32_t session, Replicas replicas, std::uint32_t packet_length) {
             self.control()->replication.set_session(session, {std::move(replicas), packet_length});
           })
      .def("set_group", on_table(&Table::set_group))
      .def(
          "set_cpu_port", [](Engine& self, std::uint32_t port) { self.control()->cpu_port = port; }, "port"_a)
      .def(
          "set_priority_queues",
          [](Engine& self, std::size_t count) { self.control()->priority_queues = count; }, "count"_a,
          "Of each port: packets with a priority of `count` or more are dropped")
      .def("has_notices",
           [](Engine& self) {
             const auto state = self.control();
             return !state->digests.empty() || !state->packets.empty();
           })
      .def("take_packets", [](Engine& self) { return list_of(self.control()->packets.take()); })
      .def("take_digests", [](Engine& self) { return list_of(self.control()->digests.take()); })
      .def(
          "set_last_hit",
          [](Engine& self, std::uint32_t table, std::uint64_t handle, std::uint64_t now_us) {
            self.control()->table(table).entry(handle).last_hit_us = now_us;
          },
          "table"_a, "handle"_a, "now_us"_a)
      .def("last_hit_us",
           [](Engine& self, std::uint32_t table, std::uint64_t handle) {
             return self.control()->table(table).entry(handle).last_hit_us;
           })
      .def(
          "set_start", [](Engine& self, std::uint64_t now_us) { self.control()->start_us = now_us; },
          "now_us"_a, "Programs' timestamps count from here")
      .def("uses_clock", &Engine::uses_clock, "Whether the program looks at the time of each packet")
      .def("now_us", [](Engine& self) { return self.control()->now_us; })
      .def(
          "seed", [](Engine& self, std::uint64_t seed) { self.control()->random.seed(seed); }, "seed"_a)
      .def(
          "set_logging", [](Engine& self, bool on) { self.control()->messages.enabled = on; }, "on"_a)
      .def(
          "take_log", [](Engine& self) { return self.control()->messages.take(); },
          "[(message, [(words, negative)])], and the number of messages that found no room")
      .def("freeze", &Engine::freeze, nb::call_guard<nb::gil_scoped_release>())
      .def("thaw", &Engine::thaw)
      .def(
          "start_trace",
          [](Engine& self, const nb::bytes& plan, std::optional<std::uint16_t> port, std::uint32_t packets) {
            self.start_trace(view(plan), port, packets);
          },
          "plan"_a, "port"_a.none(), "packets"_a)
      .def("take_traces", &Engine::take_traces, "Of each packet: [(kind, what, [(words, negative)])]")
      .def("stop_trace", &Engine::stop_trace)
      .def("tracing", &Engine::tracing)
      .def("statistics", [](Engine& self) {
        const Statistics counts = self.control()->statistics;
        return RAILWEAVE_DICT(counts, received, emitted, dropped, aborted, unnoticed);
      });
}

}  // namespace railweave::engine
