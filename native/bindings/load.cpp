// SPDX-License-Identifier: Apache-2.0
// railweave._native.load: the loops of `railweave bench switch` and `railweave bench receive`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <net/if.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/values.hpp"
#include "core/descriptor.hpp"
#include "load/echo.hpp"
#include "load/endpoint_cost.hpp"
#include "load/frame_loop.hpp"
#include "load/generator.hpp"
#include "load/reception.hpp"
#include "ports/packet_socket.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave::load {

namespace {

constexpr unsigned kMostSegments = 128;  // the kernel's limit for one UDP_SEGMENT message
constexpr std::size_t kMostBytes = 65507;

nb::dict drive(const std::vector<int>& fds, unsigned lanes, unsigned segments, std::uint32_t slots,
               std::uint32_t first_round, double warm_up_s, double seconds, bool echo) {
  if (slots == 0 || (slots & (slots - 1)) != 0) throw nb::value_error("slots must be a power of two");
  if (segments == 0 || segments > std::min(kMostSegments, slots) ||
      segments * (16 + 4 * lanes) > kMostBytes) {
    throw nb::value_error("segments must be 1 to 128, no more than slots, and fit into one IP packet");
  }
  const Group group{.slots = slots,
                    .first_round = first_round,
                    .lanes = lanes,
                    .workers = static_cast<unsigned>(fds.size()),
                    .echo = echo};
  Outcome outcome;
  {
    const nb::gil_scoped_release release;
    outcome = Generator(group, fds, segments).run(nanoseconds(warm_up_s), nanoseconds(seconds));
  }
  return RAILWEAVE_DICT(outcome, right, wrong, again, strangers, repeated, seconds);
}

std::unique_ptr<Reception> reception_of(std::string_view kind, std::size_t payload_bytes,
                                        std::uint16_t group = 1) {
  if (kind == "spread") return std::make_unique<SpreadReception>(payload_bytes, group);
  if (kind == "result") return std::make_unique<ResultReception>(payload_bytes, group);
  throw nb::value_error("kind must be spread or result");
}

nb::dict receive_from_memory(std::string_view kind, std::size_t payload_bytes, double seconds) {
  const auto reception = reception_of(kind, payload_bytes);
  Reading reading;
  {
    const nb::gil_scoped_release release;
    reading = receive_from_memory(*reception, nanoseconds(seconds));
  }
  return RAILWEAVE_DICT(reading, packets, clock, cpu);
}

nb::dict receive_from_kernel(std::string_view kind, std::size_t payload_bytes, double seconds,
                             bool super_packets, int send_on) {
  const auto reception = reception_of(kind, payload_bytes);
  Reading reading;
  {
    const nb::gil_scoped_release release;
    reading = receive_from_kernel(*reception, nanoseconds(seconds), super_packets, send_on);
  }
  return RAILWEAVE_DICT(reading, packets, clock, cpu);
}

nb::dict receive_by_workers(std::string_view kind, std::size_t payload_bytes, double seconds,
                            std::optional<bool> super_packets, const std::vector<int>& cpus) {
  if (cpus.empty()) throw nb::value_error("at least one CPU receives");
  std::vector<std::unique_ptr<Reception>> groups;
  for (std::uint16_t group : {1, 2}) groups.push_back(reception_of(kind, payload_bytes, group));
  Reading reading;
  {
    const nb::gil_scoped_release release;
    reading = receive_by_workers(groups, nanoseconds(seconds), super_packets, cpus);
  }
  return RAILWEAVE_DICT(reading, packets, clock, cpu);
}

nb::dict bound_loop_frame(int out, int in, const nb::bytes& frame, const nb::bytes& expected, unsigned window,
                          double seconds) {
  if (window == 0) throw nb::value_error("window must be at least 1");
  FrameCounts counts;
  {
    const Bytes sent = view(frame), wanted = view(expected);
    const nb::gil_scoped_release release;
    counts = loop_frame(out, in, sent, wanted, window, nanoseconds(seconds));
  }
  return RAILWEAVE_DICT(counts, right, wrong, lost, seconds);
}

nb::dict loop_shared(const std::string& out, const std::string& into, const nb::bytes& frame,
                     const nb::bytes& expected, unsigned window, double seconds) {
  if (window == 0) throw nb::value_error("window must be at least 1");
  FrameCounts counts;
  {
    const Bytes sent = view(frame), wanted = view(expected);
    if (sent.size() > ports::SharedLink::kMaxFrame) throw nb::value_error("the frame is too long");
    const nb::gil_scoped_release release;
    ports::SharedLink to(out), from(into);
    counts = loop_frame(to, from, sent, wanted, window, nanoseconds(seconds));
  }
  return RAILWEAVE_DICT(counts, right, wrong, lost, seconds);
}

nb::dict bound_measure_endpoint(DType dtype, ReduceOp op, std::uint32_t lanes, std::uint32_t slots,
                                std::uint64_t count, int rounds, bool sealed) {
  const EndpointCost cost = measure_endpoint(dtype, op, lanes, slots, count, rounds, sealed);
  return RAILWEAVE_DICT(cost, chunks, transmit_ns, receive_ns);
}

int packet_socket(const std::string& interface) {
  const unsigned index = if_nametoindex(interface.c_str());
  if (index == 0) raise_errno("interface " + interface);
  return ports::open_packet_socket(interface, index).release();
}

}  // namespace

void bind_load(nb::module_& module) {
  nb::module_ m = module.def_submodule("load", "Load on a switch, and on a receiver");
  m.def("drive", &drive, "fds"_a, "lanes"_a, "segments"_a, "slots"_a, "first_round"_a, "warm_up_s"_a,
        "seconds"_a, "echo"_a = false,
        "Contribute to group 1 over these connected UDP sockets (one per worker) in a closed loop of `slots` "
        "chunks, sent as super-packets of `segments`; counts of right, wrong and repeated contributions. "
        "`echo`: "
        "right is what comes back as it was sent, as a RESULT");
  m.def("loop_frame", &bound_loop_frame, "out"_a, "into"_a, "frame"_a, "expected"_a, "window"_a, "seconds"_a,
        "Send copies of a frame from one packet socket to another one in a closed loop of `window` frames; "
        "counts of right, wrong and lost ones");
  m.def("loop_shared", &loop_shared, "out"_a, "into"_a, "frame"_a, "expected"_a, "window"_a, "seconds"_a,
        "The same over two links `shm:NAME`; OSError if one has two ends");
  m.def("packet_socket", &packet_socket, "interface"_a,
        "The descriptor of a packet socket on this interface, for loop_frame; OSError if there is none");
  m.def("measure_endpoint", &bound_measure_endpoint, "dtype"_a, "op"_a, "lanes"_a, "slots"_a, "count"_a,
        "rounds"_a, "sealed"_a, "CPU time of an in-network endpoint alone, in nanoseconds over all chunks.");
  nb::class_<Echo>(m, "Echo", "The ports of a switch that return UDP packets, as results of the program")
      .def(
          "__init__",
          [](Echo* self, const std::vector<Echo::Interface>& interfaces) {
            new (self) Echo(interfaces, ports::OutputLimits{});
          },
          "interfaces"_a,
          "Opens (port, interface name) pairs; OSError names the interface that cannot be opened")
      .def("start", &Echo::start)
      .def("stop", &Echo::stop, nb::call_guard<nb::gil_scoped_release>());
  m.def("receive_from_memory", nb::overload_cast<std::string_view, std::size_t, double>(&receive_from_memory),
        "kind"_a, "payload_bytes"_a, "seconds"_a,
        "Have one rank receive datagrams of kind spread or result that lie in memory; their number, and the "
        "nanoseconds that this took on the clock and of the processor. RuntimeError if a byte is not in its "
        "place");
  m.def("receive_from_kernel",
        nb::overload_cast<std::string_view, std::size_t, double, bool, int>(&receive_from_kernel), "kind"_a,
        "payload_bytes"_a, "seconds"_a, "super_packets"_a, "send_on"_a,
        "The same through sockets of 127.0.0.1, with a sender on CPU `send_on`. RuntimeError also if a "
        "datagram is lost");
  m.def(
      "receive_by_workers",
      nb::overload_cast<std::string_view, std::size_t, double, std::optional<bool>, const std::vector<int>&>(
          &receive_by_workers),
      "kind"_a, "payload_bytes"_a, "seconds"_a, "super_packets"_a, "cpus"_a,
      "Have datagrams of two groups received by a thread on each of these CPUs, from memory (super_packets "
      "None) or out of the queues of sockets that share a port; as above, of the thread that takes longest");
}

}  // namespace railweave::load
