// SPDX-License-Identifier: Apache-2.0
// railweave._native.ports: the switch's packet I/O.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <system_error>

#include "bindings/impairment.hpp"
#include "bindings/values.hpp"
#include "ports/switch_ports.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave::ports {

namespace {

Direction direction(bool out) { return out ? Direction::kOut : Direction::kIn; }

/// Ports that keep the Python object of their engine alive while they use it.
class BoundPorts {
 public:
  BoundPorts(const std::vector<SwitchPorts::Interface>& interfaces, std::size_t super_packet_bytes,
             bool exact_bytes, std::size_t priority_queues)
      : ports_(interfaces, {.super_packet_bytes = super_packet_bytes,
                            .exact_bytes = exact_bytes,
                            .priority_queues = priority_queues}) {}
  ~BoundPorts() { stop(); }

  void stop() {
    const nb::gil_scoped_release release;
    ports_.stop();
  }

  bool inject(std::uint16_t port, const nb::bytes& packet) {
    const Bytes bytes = view(packet);
    const nb::gil_scoped_release release;
    return ports_.inject(port, bytes);
  }

  void set_engine(const nb::object& engine, int notices) {
    auto* native = engine.is_none() ? nullptr : nb::cast<engine::Engine*>(engine);
    {
      const nb::gil_scoped_release release;
      ports_.set_engine(native, notices);
    }
    engine_ = engine;  // the previous engine may be freed only now
  }

  void impair(std::uint16_t port, bool out, const nb::object& values) {
    std::optional<Impairment> impairment;
    if (!values.is_none()) impairment = to_impairment(nb::cast<nb::dict>(values));
    const nb::gil_scoped_release release;
    ports_.impair(port, direction(out), impairment);
  }

  void capture(std::uint16_t port, bool out, const std::string& path) {
    ports_.capture(port, direction(out), path);
  }

  std::optional<nb::dict> impairment_counts(std::uint16_t port, bool out) {
    const auto counts = ports_.impairment_counts(port, direction(out));
    return counts ? std::optional(describe(*counts)) : std::nullopt;
  }

  nb::list counters() const {
    nb::list all;
    for (const auto& port : ports_.ports()) {
      nb::dict one = RAILWEAVE_DICT(port->counters, rx_packets, rx_bytes, rx_frames, rx_missed, rx_refused,
                                    tx_packets, tx_bytes, tx_frames, tx_dropped, tx_refused, tx_rewritten);
      one["port"] = port->number();
      one["interface"] = port->interface();
      one["up"] = port->up();
      all.append(one);
    }
    return all;
  }

  SwitchPorts& ports() { return ports_; }

 private:
  nb::object engine_ = nb::none();
  SwitchPorts ports_;  // declared after `engine_`, so its thread ends first
};

void raise_os_error(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const std::system_error& error) {
    const nb::object exception = nb::handle(PyExc_OSError)(error.code().value(), nb::str(error.what()));
    PyErr_SetObject(PyExc_OSError, exception.ptr());
  }
}

}  // namespace

void bind_ports(nb::module_& module) {
  nb::module_ m = module.def_submodule("ports", "Packet I/O of the embedded switch");
  nb::register_exception_translator(raise_os_error);
  nb::class_<BoundPorts>(m, "SwitchPorts", "Sockets of all ports and the thread between them and an engine")
      .def(nb::init<const std::vector<SwitchPorts::Interface>&, std::size_t, bool, std::size_t>(),
           "interfaces"_a, "super_packet_bytes"_a = OutputLimits{}.super_packet_bytes,
           "exact_bytes"_a = false, "priority_queues"_a = OutputLimits{}.priority_queues,
           "Opens (port, interface name) pairs; OSError names the interface that cannot be opened")
      .def("start", [](BoundPorts& self) { self.ports().start(); })
      .def("stop", &BoundPorts::stop)
      .def("inject", &BoundPorts::inject, "port"_a, "packet"_a,
           "Runs a packet through the engine, soon, as if it came in on a port; False if too many wait")
      .def("set_engine", &BoundPorts::set_engine, "engine"_a.none(), "notices"_a = -1,
           "Packets go through this engine from now on; None drops them")
      .def("impair", &BoundPorts::impair, "port"_a, "out"_a, "impairment"_a.none(),
           "Impairs a port in one direction; None: not any more")
      .def("impairment_counts", &BoundPorts::impairment_counts, "port"_a, "out"_a)
      .def("capture", &BoundPorts::capture, "port"_a, "out"_a, "path"_a,
           nb::call_guard<nb::gil_scoped_release>(),
           "Writes what passes to a pcap file; an empty path ends it")
      .def("counters", &BoundPorts::counters, "One dictionary per port")
      .def_prop_ro("without_program", [](BoundPorts& self) { return self.ports().without_program(); })
      .def_prop_ro("no_such_port", [](BoundPorts& self) { return self.ports().no_such_port(); });
}

}  // namespace railweave::ports
