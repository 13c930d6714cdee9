// SPDX-License-Identifier: Apache-2.0
// railweave._native.ports: the switch's packet I/O, and its two pure halves (cutting, coalescing) for tests
// and tools.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <system_error>

#include "bindings/values.hpp"
#include "core/segments.hpp"
#include "ports/switch_ports.hpp"

namespace nb = nanobind;
using namespace nb::literals;

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

nb::dict describe(const ImpairmentCounts& counts) {
  return RAILWEAVE_DICT(counts, packets, lost, duplicated, reordered, corrupted, overflowed);
}

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
    engine_ = engine;  // only now may the one before go
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
  SwitchPorts ports_;  // after `engine_`: goes first, and its thread with it
};

Offload to_offload(const nb::bytes& bytes) {
  Offload offload{};
  if (bytes.size() != sizeof offload)
    throw nb::value_error("an offload header (struct virtio_net_hdr) has 10 bytes");
  std::memcpy(&offload, bytes.c_str(), sizeof offload);
  return offload;
}

std::optional<nb::list> cut(const nb::bytes& frame, const nb::bytes& offload) {
  std::vector<std::byte> copy(view(frame).begin(), view(frame).end());
  Segments segments(copy, to_offload(offload));
  nb::list packets;
  while (const auto packet = segments.next()) packets.append(to_python(*packet));
  return segments.refused() ? std::nullopt : std::optional(packets);
}

nb::list coalesce(const std::vector<nb::bytes>& packets, std::size_t super_packet_bytes, bool exact_bytes) {
  std::size_t room = 64;
  for (const nb::bytes& packet : packets) room += packet.size() + 64;
  OutputQueue queue(
      {.super_packet_bytes = super_packet_bytes, .exact_bytes = exact_bytes, .queue_bytes = room});
  for (const nb::bytes& packet : packets) queue.push(railweave::engine::Pieces(view(packet)));
  nb::list frames;
  for (const OutputFrame& frame : queue.frames()) {
    const Bytes all(queue.data(frame), frame.size);
    frames.append(
        nb::make_tuple(to_python(all.first(sizeof(Offload))), to_python(all.subspan(sizeof(Offload)))));
  }
  return frames;
}

/// An impaired link in virtual time, for tests and simulations.
class BoundLink {
 public:
  explicit BoundLink(const nb::dict& values) : link_(to_impairment(values)) {}

  void push(const nb::bytes& packet, Time now, std::size_t priority) {
    link_.push(view(packet), now, priority);
  }
  std::optional<nb::bytes> pop(Time now) {
    const auto packet = link_.pop(now);
    return packet ? std::optional(to_python(*packet)) : std::nullopt;
  }
  std::optional<Time> deadline() const { return or_none(link_.deadline()); }
  /// Packets that wait for their turn, and how long one that comes now would.
  std::pair<std::size_t, Duration> backlog(Time now, std::size_t priority) const {
    return {link_.backlog(now, priority), link_.wait(now, priority)};
  }
  nb::dict counts() const { return describe(link_.counts()); }

 private:
  ImpairedLink link_;
};

std::optional<nb::bytes> receive(SharedLink& link) {
  if (!link.readable()) return std::nullopt;
  std::vector<std::byte> frame(SharedLink::kMaxFrame);
  return to_python(Bytes(frame).first(link.receive(frame)));
}

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
  nb::class_<BoundLink>(m, "ImpairedLink", "One direction of a bad link, in virtual time of nanoseconds")
      .def(nb::init<const nb::dict&>(), "impairment"_a)
      .def("push", &BoundLink::push, "packet"_a, "now"_a, "priority"_a = 0)
      .def("pop", &BoundLink::pop, "now"_a, "The next packet that is due, or None")
      .def("deadline", &BoundLink::deadline, "When there will be one, or None")
      .def("backlog", &BoundLink::backlog, "now"_a, "priority"_a = 0,
           "Packets that wait for the link's rate, and how long one that comes now would")
      .def("counts", &BoundLink::counts);
  nb::class_<SharedLink>(m, "SharedLink", "An end of the shared link `shm:NAME`, until it is deleted")
      .def(nb::init<const std::string&>(), "interface"_a, "OSError if the link has two ends")
      .def(
          "send",
          [](SharedLink& self, const nb::bytes& frame) {
            if (frame.size() > SharedLink::kMaxFrame) throw nb::value_error("the frame is too long");
            return self.send(view(frame));
          },
          "frame"_a, "False if the ring is full")
      .def("receive", &receive, "The next frame, empty if it is invalid; None if there is none");
  m.attr("SHARED_LINK_FRAMES") = SharedLink::kFrames;
  m.attr("SHARED_LINK_MAX_FRAME") = SharedLink::kMaxFrame;
  m.def("cut", &cut, "frame"_a, "offload"_a,
        "The packets of a frame with this struct virtio_net_hdr; None if it cannot be understood");
  m.def("coalesce", &coalesce, "packets"_a, "super_packet_bytes"_a = OutputLimits{}.super_packet_bytes,
        "exact_bytes"_a = false,
        "What one port would send for these packets: (struct virtio_net_hdr, frame) pairs");
}

}  // namespace railweave::ports
