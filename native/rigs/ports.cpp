// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.ports: the two pure halves of the switch's packet I/O (cutting, coalescing), an impaired
// link in virtual time and an end of a shared link, for tests.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <vector>

#include "bindings/impairment.hpp"
#include "bindings/values.hpp"
#include "core/segments.hpp"
#include "ports/impairment.hpp"
#include "ports/output_queue.hpp"
#include "ports/shared_link.hpp"
#include "rigs/rig.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave::ports {
namespace {

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
  /// Number of waiting packets, and how long a packet would wait if it came now.
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

}  // namespace

void bind_ports(nb::module_& rigs) {
  nb::module_ m = rig_submodule(rigs, "ports", "Packet I/O of the embedded switch");
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
