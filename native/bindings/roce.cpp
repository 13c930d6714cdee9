// SPDX-License-Identifier: Apache-2.0
// railweave._native.roce: RoCEv2 packets for tools. Data paths stay in C++.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <cstring>
#include <vector>

#include "bindings/values.hpp"
#include "rails/frame_socket.hpp"
#include "roce/frame.hpp"
#include "roce/packet.hpp"

namespace nb = nanobind;
using namespace nb::literals;

RAILWEAVE_TUPLE(railweave::roce::Reth, address, rkey, length)
RAILWEAVE_TUPLE(railweave::roce::Aeth, kind, value, msn)

namespace railweave::roce {
namespace {

nb::dict describe(const Packet& packet) {
  nb::dict out = RAILWEAVE_DICT(packet, opcode, solicited, ack_request, partition, qpn, psn);
  const OpcodeShape shape = packet.shape();
  if (shape.reth) out["reth"] = packet.reth;
  if (shape.aeth) out["aeth"] = packet.aeth;
  if (shape.immediate) out["immediate"] = packet.immediate;
  out["payload"] = to_python(packet.payload);
  return out;
}

nb::bytes build(Opcode opcode, std::uint32_t qpn, std::uint32_t psn, nb::bytes payload, bool ack_request,
                bool solicited, std::uint16_t partition, const Reth& reth, const Aeth& aeth,
                std::uint32_t immediate) {
  const Packet packet{.opcode = opcode,
                      .solicited = solicited,
                      .ack_request = ack_request,
                      .partition = partition,
                      .qpn = qpn,
                      .psn = psn,
                      .reth = reth,
                      .aeth = aeth,
                      .immediate = immediate,
                      .payload = view(payload)};
  std::vector<std::byte> out(written_size(packet));
  write(packet, out);
  return to_python(out);
}

std::optional<nb::dict> parse_bytes(const nb::bytes& transport) {
  const auto packet = parse(view(transport));
  return packet ? std::optional(describe(*packet)) : std::nullopt;
}

nb::bytes seal_bytes(const Path& path, std::uint16_t ip_id, const nb::bytes& transport) {
  std::vector<std::byte> frame(kFrameHeaderSize + transport.size() + kIcrcSize);
  std::memcpy(&frame[kFrameHeaderSize], transport.data(), transport.size());
  seal(path, ip_id, frame, transport.size());
  return to_python(frame);
}

nb::list open_bytes(const nb::bytes& frame, std::uint16_t gso_size) {
  Offload offload{};
  offload.gso_type = gso_size > 0 ? kGsoUdp : kGsoNone;
  offload.gso_size = gso_size;
  OpenedFrames frames(view(frame), offload);
  nb::list packets;
  while (const auto* opened = frames.next())
    packets.append(
        nb::make_tuple(opened->fault, opened->source, opened->destination, to_python(opened->transport)));
  return packets;
}

void bind_codec(nb::module_& m) {
  nb::enum_<Opcode>(m, "Opcode", nb::is_arithmetic())
      RAILWEAVE_VALUES(Opcode, kSendFirst, kSendMiddle, kSendLast, kSendLastImmediate, kSendOnly,
                       kSendOnlyImmediate, kWriteFirst, kWriteMiddle, kWriteLast, kWriteLastImmediate,
                       kWriteOnly, kWriteOnlyImmediate, kReadRequest, kReadResponseFirst, kReadResponseMiddle,
                       kReadResponseLast, kReadResponseOnly, kAcknowledge);
  RAILWEAVE_ENUM(m, FrameFault, kNone, kNotRoce, kMalformed, kBadIcrc);
  m.def("build", &build, "opcode"_a, "qpn"_a, "psn"_a, "payload"_a = nb::bytes("", 0), nb::kw_only(),
        "ack_request"_a = false, "solicited"_a = false, "partition"_a = kDefaultPartition, "reth"_a = Reth{},
        "aeth"_a = Aeth{}, "immediate"_a = 0u, "A transport packet, BTH to padding.");
  m.def("parse", &parse_bytes, "transport"_a,
        "The fields of a transport packet, or None if it is malformed.");
}

void bind_frame(nb::module_& m) {
  nb::class_<Path>(m, "Path", "Addresses from here to the peer; IPv4 addresses as integers.")
      .def(
          "__init__",
          [](Path* self, const nb::bytes& source_mac, const nb::bytes& peer_mac, Ipv4Address source,
             Ipv4Address peer, std::uint16_t source_port) {
            new (self) Path{mac_of(source_mac), mac_of(peer_mac), source, peer, source_port};
          },
          "source_mac"_a, "peer_mac"_a, "source"_a, "peer"_a, "source_port"_a = Path{}.source_port);
  m.def("seal", &seal_bytes, "path"_a, "ip_id"_a, "transport"_a,
        "An Ethernet frame around a transport packet.");
  m.def(
      "open_frames", &open_bytes, "frame"_a, "gso_size"_a = 0,
      "(fault, source, destination, transport packet) of each packet of a frame; gso_size is the UDP payload "
      "of each in a super-packet.");
}

}  // namespace
}  // namespace railweave::roce

namespace railweave {

void bind_roce(nb::module_& m) {
  nb::module_ roce = m.def_submodule("roce", "RoCEv2 packets");
  roce::bind_codec(roce);
  roce::bind_frame(roce);
  roce.def(
      "try_kernel_cuts", &FrameSocket::try_kernel_cuts,
      "Whether the kernel cuts UDP super-packets of packet sockets (Linux 6.2 and later). Sends one over "
      "loopback, to nobody. OSError if that cannot be tried");
}

}  // namespace railweave
