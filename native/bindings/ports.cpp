// SPDX-License-Identifier: Apache-2.0
// railweave._native.ports: the switch's packet I/O, and its two pure halves (cutting, coalescing) for tests
// and tools.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/segments.hpp"
#include "ports/switch_ports.hpp"

namespace nb = nanobind;

namespace railweave::ports {

namespace {

Direction direction(bool out) { return out ? Direction::kOut : Direction::kIn; }

Impairment to_impairment(const nb::dict& values) {
  return {.loss = nb::cast<double>(values["loss"]),
          .duplicate = nb::cast<double>(values["duplicate"]),
          .reorder = nb::cast<double>(values["reorder"]),
          .corrupt = nb::cast<double>(values["corrupt"]),
          .delay = nb::cast<Duration>(values["delay_ns"]),
          .rate_bps = nb::cast<std::uint64_t>(values["rate_bps"]),
          .seed = nb::cast<std::uint64_t>(values["seed"]),
          .queue_bytes = nb::cast<std::size_t>(values["queue_bytes"])};
}

nb::dict to_python(const ImpairmentCounts& counts) {
  nb::dict all;
  all["packets"] = counts.packets;
  all["lost"] = counts.lost;
  all["duplicated"] = counts.duplicated;
  all["reordered"] = counts.reordered;
  all["corrupted"] = counts.corrupted;
  all["overflowed"] = counts.overflowed;
  return all;
}

/// Ports that keep the Python object of their engine alive while they use it.
class BoundPorts {
 public:
  BoundPorts(const std::vector<SwitchPorts::Interface>& interfaces, std::size_t super_packet_bytes,
             bool exact_bytes)
      : ports_(interfaces, {.super_packet_bytes = super_packet_bytes, .exact_bytes = exact_bytes}) {}
  ~BoundPorts() { stop(); }

  void start() { ports_.start(); }

  void stop() {
    const nb::gil_scoped_release release;
    ports_.stop();
  }

  bool inject(std::uint16_t port, const nb::bytes& packet) {
    const Bytes bytes{static_cast<const std::byte*>(packet.data()), packet.size()};
    const nb::gil_scoped_release release;
    return ports_.inject(port, bytes);
  }

  void set_engine(const nb::object& engine, int notices) {
    auto* native = engine.is_none() ? nullptr : nb::cast<engine::Engine*>(engine);
    {
      const nb::gil_scoped_release release;
      ports_.set_engine(native, notices);
    }
    engine_ = engine;  // only now may the one before go
  }

  void impair(std::uint16_t port, bool out, const nb::object& values) {
    std::optional<Impairment> impairment;
    if (!values.is_none()) impairment = to_impairment(nb::cast<nb::dict>(values));
    const nb::gil_scoped_release release;
    ports_.impair(port, direction(out), impairment);
  }

  void capture(std::uint16_t port, bool out, const std::string& path) {
    const nb::gil_scoped_release release;
    ports_.capture(port, direction(out), path);
  }

  nb::object impairment_counts(std::uint16_t port, bool out) {
    const auto counts = ports_.impairment_counts(port, direction(out));
    return counts ? nb::object(to_python(*counts)) : nb::none();
  }

  nb::list counters() const {
    nb::list all;
    for (const auto& port : ports_.ports()) {
      const PortCounters& c = port->counters;
      nb::dict one;
      one["port"] = port->number();
      one["interface"] = port->interface();
      one["up"] = port->up();
      one["rx_packets"] = c.rx_packets.get();
      one["rx_bytes"] = c.rx_bytes.get();
      one["rx_frames"] = c.rx_frames.get();
      one["rx_missed"] = c.rx_missed.get();
      one["rx_refused"] = c.rx_refused.get();
      one["tx_packets"] = c.tx_packets.get();
      one["tx_bytes"] = c.tx_bytes.get();
      one["tx_frames"] = c.tx_frames.get();
      one["tx_dropped"] = c.tx_dropped.get();
      one["tx_refused"] = c.tx_refused.get();
      one["tx_rewritten"] = c.tx_rewritten.get();
      all.append(one);
    }
    return all;
  }

  std::uint64_t without_program() const { return ports_.without_program(); }
  std::uint64_t no_such_port() const { return ports_.no_such_port(); }

 private:
  nb::object engine_ = nb::none();
  SwitchPorts ports_;  // after `engine_`: goes first, and its thread with it
};

Offload to_offload(const nb::bytes& bytes) {
  Offload offload{};
  if (bytes.size() != sizeof offload)
    throw nb::value_error("an offload header (struct virtio_net_hdr) has 10 bytes");
  std::memcpy(&offload, bytes.c_str(), sizeof offload);
  return offload;
}

nb::bytes to_python(Bytes bytes) { return nb::bytes(bytes.data(), bytes.size()); }

nb::object cut(const nb::bytes& frame, const nb::bytes& offload) {
  const auto* start = static_cast<const std::byte*>(frame.data());
  std::vector<std::byte> copy(start, start + frame.size());
  Segments segments(copy, to_offload(offload));
  nb::list packets;
  while (const auto packet = segments.next()) packets.append(to_python(*packet));
  return segments.refused() ? nb::none() : nb::object(packets);
}

nb::list coalesce(const std::vector<nb::bytes>& packets, std::size_t super_packet_bytes, bool exact_bytes) {
  std::size_t room = 64;
  for (const nb::bytes& packet : packets) room += packet.size() + 64;
  OutputQueue queue(
      {.super_packet_bytes = super_packet_bytes, .exact_bytes = exact_bytes, .queue_bytes = room});
  for (const nb::bytes& packet : packets) {
    queue.push({static_cast<const std::byte*>(packet.data()), packet.size()});
  }
  nb::list frames;
  for (const OutputFrame& frame : queue.frames()) {
    const std::byte* data = queue.data(frame);
    frames.append(nb::make_tuple(to_python({data, sizeof(Offload)}),
                                 to_python({data + sizeof(Offload), frame.size - sizeof(Offload)})));
  }
  return frames;
}

/// An impaired link in virtual time, for tests and simulations.
class BoundLink {
 public:
  explicit BoundLink(const nb::dict& values) : link_(to_impairment(values)) {}

  void push(const nb::bytes& packet, Time now) {
    link_.push({static_cast<const std::byte*>(packet.data()), packet.size()}, now);
  }
  nb::object pop(Time now) {
    const auto packet = link_.pop(now);
    return packet ? nb::object(to_python(*packet)) : nb::none();
  }
  nb::object deadline() const {
    return link_.deadline() == kNever ? nb::none() : nb::object(nb::int_(link_.deadline()));
  }
  /// Packets that wait for their turn, and how long one that comes now would.
  std::pair<std::size_t, Duration> backlog(Time now) const { return {link_.backlog(now), link_.wait(now)}; }
  nb::dict counts() const { return to_python(link_.counts()); }

 private:
  ImpairedLink link_;
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
      .def(nb::init<const std::vector<SwitchPorts::Interface>&, std::size_t, bool>(), nb::arg("interfaces"),
           nb::arg("super_packet_bytes") = OutputLimits{}.super_packet_bytes, nb::arg("exact_bytes") = false,
           "Opens (port, interface name) pairs; OSError names the interface that cannot be opened")
      .def("start", &BoundPorts::start)
      .def("stop", &BoundPorts::stop)
      .def("inject", &BoundPorts::inject, nb::arg("port"), nb::arg("packet"),
           "Runs a packet through the engine, soon, as if it came in on a port; False if too many wait")
      .def("set_engine", &BoundPorts::set_engine, nb::arg("engine").none(), nb::arg("notices") = -1,
           "Packets go through this engine from now on; None drops them")
      .def("impair", &BoundPorts::impair, nb::arg("port"), nb::arg("out"), nb::arg("impairment").none(),
           "Impairs a port in one direction; None: not any more")
      .def("impairment_counts", &BoundPorts::impairment_counts, nb::arg("port"), nb::arg("out"))
      .def("capture", &BoundPorts::capture, nb::arg("port"), nb::arg("out"), nb::arg("path"),
           "Writes what passes to a pcap file; an empty path ends it")
      .def("counters", &BoundPorts::counters, "One dictionary per port")
      .def_prop_ro("without_program", &BoundPorts::without_program)
      .def_prop_ro("no_such_port", &BoundPorts::no_such_port);
  nb::class_<BoundLink>(m, "ImpairedLink", "One direction of a bad link, in virtual time of nanoseconds")
      .def(nb::init<const nb::dict&>(), nb::arg("impairment"))
      .def("push", &BoundLink::push, nb::arg("packet"), nb::arg("now"))
      .def("pop", &BoundLink::pop, nb::arg("now"), "The next packet that is due, or None")
      .def("deadline", &BoundLink::deadline, "When there will be one, or None")
      .def("backlog", &BoundLink::backlog, nb::arg("now"),
           "Packets that wait for the link's rate, and how long one that comes now would")
      .def("counts", &BoundLink::counts);
  m.def("cut", &cut, nb::arg("frame"), nb::arg("offload"),
        "The packets of a frame with this struct virtio_net_hdr; None if it cannot be understood");
  m.def("coalesce", &coalesce, nb::arg("packets"),
        nb::arg("super_packet_bytes") = OutputLimits{}.super_packet_bytes, nb::arg("exact_bytes") = false,
        "What one port would send for these packets: (struct virtio_net_hdr, frame) pairs");
}

}  // namespace railweave::ports
