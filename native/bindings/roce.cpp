// SPDX-License-Identifier: Apache-2.0
// railweave._native.roce: the RoCEv2 codec and queue pair for tests and tools. Data paths stay in C++.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "loop/event_loop.hpp"
#include "rails/rdma_endpoint.hpp"
#include "roce/crc32.hpp"
#include "roce/frame.hpp"
#include "roce/memory.hpp"
#include "roce/packet.hpp"
#include "roce/psn.hpp"
#include "roce/queue_pair.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave::roce {
namespace {

using Array = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Bytes view(const nb::bytes& bytes) { return {static_cast<const std::byte*>(bytes.data()), bytes.size()}; }
MutableBytes view(const Array& array) { return {reinterpret_cast<std::byte*>(array.data()), array.size()}; }
nb::bytes copy(Bytes bytes) { return nb::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size()); }

nb::dict describe(const Packet& packet) {
  nb::dict out;
  out["opcode"] = nb::cast(packet.opcode);
  out["solicited"] = packet.solicited;
  out["ack_request"] = packet.ack_request;
  out["partition"] = packet.partition;
  out["qpn"] = packet.qpn;
  out["psn"] = packet.psn;
  const OpcodeShape shape = packet.shape();
  if (shape.reth) out["reth"] = nb::make_tuple(packet.reth.address, packet.reth.rkey, packet.reth.length);
  if (shape.aeth)
    out["aeth"] = nb::make_tuple(static_cast<int>(packet.aeth.kind), packet.aeth.value, packet.aeth.msn);
  if (shape.immediate) out["immediate"] = packet.immediate;
  out["payload"] = copy(packet.payload);
  return out;
}

nb::bytes build(Opcode opcode, std::uint32_t qpn, std::uint32_t psn, nb::bytes payload, bool ack_request,
                bool solicited, std::uint16_t partition,
                std::tuple<std::uint64_t, std::uint32_t, std::uint32_t> reth,
                std::tuple<int, int, std::uint32_t> aeth, std::uint32_t immediate) {
  Packet packet;
  packet.opcode = opcode;
  packet.qpn = qpn;
  packet.psn = psn;
  packet.payload = view(payload);
  packet.ack_request = ack_request;
  packet.solicited = solicited;
  packet.partition = partition;
  packet.reth = {std::get<0>(reth), std::get<1>(reth), std::get<2>(reth)};
  packet.aeth = {static_cast<AckKind>(std::get<0>(aeth)), static_cast<std::uint8_t>(std::get<1>(aeth)),
                 std::get<2>(aeth)};
  packet.immediate = immediate;
  std::vector<std::byte> out(written_size(packet));
  write(packet, out);
  return copy(out);
}

std::optional<nb::dict> parse_bytes(const nb::bytes& transport) {
  const auto packet = parse(view(transport));
  if (!packet) return std::nullopt;
  return describe(*packet);
}

nb::bytes seal_bytes(const Path& path, std::uint16_t ip_id, const nb::bytes& transport) {
  std::vector<std::byte> frame(kFrameHeaderSize + transport.size() + kIcrcSize);
  std::memcpy(&frame[kFrameHeaderSize], transport.data(), transport.size());
  seal(path, ip_id, frame, transport.size());
  return copy(frame);
}

nb::tuple open_bytes(const nb::bytes& frame) {
  const OpenedFrame opened = open_frame(view(frame));
  return nb::make_tuple(opened.fault, opened.source, opened.destination, copy(opened.transport));
}

MacAddress mac_of(const nb::bytes& bytes) {
  MacAddress mac;
  if (bytes.size() != mac.size()) throw nb::value_error("a MAC address has six bytes");
  std::memcpy(mac.data(), bytes.data(), mac.size());
  return mac;
}

void bind_codec(nb::module_& m) {
  nb::enum_<Opcode>(m, "Opcode", nb::is_arithmetic())
      .value("SEND_FIRST", Opcode::kSendFirst)
      .value("SEND_MIDDLE", Opcode::kSendMiddle)
      .value("SEND_LAST", Opcode::kSendLast)
      .value("SEND_LAST_IMMEDIATE", Opcode::kSendLastImmediate)
      .value("SEND_ONLY", Opcode::kSendOnly)
      .value("SEND_ONLY_IMMEDIATE", Opcode::kSendOnlyImmediate)
      .value("WRITE_FIRST", Opcode::kWriteFirst)
      .value("WRITE_MIDDLE", Opcode::kWriteMiddle)
      .value("WRITE_LAST", Opcode::kWriteLast)
      .value("WRITE_LAST_IMMEDIATE", Opcode::kWriteLastImmediate)
      .value("WRITE_ONLY", Opcode::kWriteOnly)
      .value("WRITE_ONLY_IMMEDIATE", Opcode::kWriteOnlyImmediate)
      .value("READ_REQUEST", Opcode::kReadRequest)
      .value("READ_RESPONSE_FIRST", Opcode::kReadResponseFirst)
      .value("READ_RESPONSE_MIDDLE", Opcode::kReadResponseMiddle)
      .value("READ_RESPONSE_LAST", Opcode::kReadResponseLast)
      .value("READ_RESPONSE_ONLY", Opcode::kReadResponseOnly)
      .value("ACKNOWLEDGE", Opcode::kAcknowledge);
  nb::enum_<Operation>(m, "Operation")
      .value("SEND", Operation::kSend)
      .value("WRITE", Operation::kWrite)
      .value("READ", Operation::kReadRequest)
      .value("READ_RESPONSE", Operation::kReadResponse)
      .value("ACKNOWLEDGE", Operation::kAcknowledge);
  nb::enum_<Inside>(m, "Inside")
      .value("NOTHING", Inside::kNothing)
      .value("SEND", Inside::kSend)
      .value("WRITE", Inside::kWrite);
  nb::enum_<FrameFault>(m, "FrameFault")
      .value("NONE", FrameFault::kNone)
      .value("NOT_ROCE", FrameFault::kNotRoce)
      .value("MALFORMED", FrameFault::kMalformed)
      .value("BAD_ICRC", FrameFault::kBadIcrc);
  m.attr("UDP_PORT") = kUdpPort;
  m.def("build", &build, "opcode"_a, "qpn"_a, "psn"_a, "payload"_a = nb::bytes("", 0), nb::kw_only(),
        "ack_request"_a = false, "solicited"_a = false, "partition"_a = kDefaultPartition,
        "reth"_a = std::make_tuple(std::uint64_t{0}, 0u, 0u), "aeth"_a = std::make_tuple(0, 0, 0u),
        "immediate"_a = 0u, "A transport packet, BTH to padding.");
  m.def("parse", &parse_bytes, "transport"_a,
        "The fields of a transport packet, or None if it is malformed.");
  m.def("legal", &legal, "inside"_a, "operation"_a, "starts"_a,
        "Whether a request may come at this place in a message.");
  m.def("sequence_near", &sequence_near, "reference"_a, "psn"_a,
        "The 64-bit sequence nearest to reference with this PSN.");
  m.def("crc32", [](const nb::bytes& bytes) { return ~crc32_update(kCrcStart, view(bytes)); }, "bytes"_a);
  m.def(
      "crc32_by_table", [](const nb::bytes& bytes) { return ~crc32_update_by_table(kCrcStart, view(bytes)); },
      "bytes"_a, "The portable path of crc32.");
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
  m.def("open_frame", &open_bytes, "frame"_a, "(fault, source, destination, transport packet) of a frame.");
}

void bind_work(nb::module_& m) {
  nb::enum_<CompletionKind>(m, "CompletionKind")
      .value("SEND", CompletionKind::kSend)
      .value("WRITE", CompletionKind::kWrite)
      .value("READ", CompletionKind::kRead)
      .value("RECEIVE", CompletionKind::kReceive)
      .value("RECEIVE_WRITE", CompletionKind::kReceiveWrite);
  nb::enum_<Status>(m, "Status")
      .value("SUCCESS", Status::kSuccess)
      .value("FLUSHED", Status::kFlushed)
      .value("RETRIES_EXCEEDED", Status::kRetriesExceeded)
      .value("RNR_RETRIES_EXCEEDED", Status::kRnrRetriesExceeded)
      .value("REMOTE_ACCESS_ERROR", Status::kRemoteAccessError)
      .value("REMOTE_INVALID_REQUEST", Status::kRemoteInvalidRequest)
      .value("REMOTE_OPERATIONAL_ERROR", Status::kRemoteOperationalError)
      .value("BAD_RESPONSE", Status::kBadResponse);
  nb::class_<Completion>(m, "Completion")
      .def_ro("id", &Completion::id)
      .def_ro("kind", &Completion::kind)
      .def_ro("status", &Completion::status)
      .def_ro("byte_count", &Completion::byte_count)
      .def_ro("immediate", &Completion::immediate);
  nb::class_<QueuePairStats>(m, "QueuePairStats")
      .def_ro("packets_sent", &QueuePairStats::packets_sent)
      .def_ro("packets_received", &QueuePairStats::packets_received)
      .def_ro("retransmissions", &QueuePairStats::retransmissions)
      .def_ro("timeouts", &QueuePairStats::timeouts)
      .def_ro("naks_sent", &QueuePairStats::naks_sent)
      .def_ro("naks_received", &QueuePairStats::naks_received)
      .def_ro("duplicates", &QueuePairStats::duplicates)
      .def_ro("out_of_order", &QueuePairStats::out_of_order)
      .def_ro("refused", &QueuePairStats::refused);
  const QueuePairOptions defaults;
  nb::class_<QueuePairOptions>(m, "QueuePairOptions")
      .def(
          "__init__",
          [](QueuePairOptions* self, std::uint32_t qpn, std::uint32_t peer_qpn, std::uint32_t send_psn,
             std::uint32_t receive_psn, std::size_t path_mtu, std::int64_t window, std::int64_t min_window,
             Duration first_timeout, Duration min_timeout, Duration max_timeout, int retries, int rnr_retries,
             std::uint8_t rnr_timer, int max_reads) {
            new (self) QueuePairOptions{qpn,     peer_qpn,    send_psn,      receive_psn, path_mtu,
                                        window,  min_window,  first_timeout, min_timeout, max_timeout,
                                        retries, rnr_retries, rnr_timer,     max_reads};
          },
          "qpn"_a, "peer_qpn"_a, "send_psn"_a = 0, "receive_psn"_a = 0, nb::kw_only(),
          "path_mtu"_a = defaults.path_mtu, "window"_a = defaults.window,
          "min_window"_a = defaults.min_window, "first_timeout"_a = defaults.first_timeout,
          "min_timeout"_a = defaults.min_timeout, "max_timeout"_a = defaults.max_timeout,
          "retries"_a = defaults.retries, "rnr_retries"_a = defaults.rnr_retries,
          "rnr_timer"_a = defaults.rnr_timer, "max_reads"_a = defaults.max_reads,
          "Times in nanoseconds, windows in packets.")
      .def_ro("path_mtu", &QueuePairOptions::path_mtu);
}

void bind_queue_pair(nb::module_& m) {
  m.attr("REMOTE_READ") = static_cast<int>(kRemoteRead);
  m.attr("REMOTE_WRITE") = static_cast<int>(kRemoteWrite);
  nb::class_<MemoryRegions>(m, "MemoryRegions")
      .def(nb::init<>())
      .def(
          "add",
          [](MemoryRegions& self, const Array& buffer, int access, std::uint32_t qpn) {
            return self.add(view(buffer), static_cast<std::uint8_t>(access), qpn);
          },
          "buffer"_a, "access"_a, "qpn"_a = MemoryRegions::kAnyQueuePair, nb::keep_alive<1, 2>(),
          "Registers a buffer; returns its rkey. Its remote address is the buffer's own.")
      .def("remove", &MemoryRegions::remove, "rkey"_a);
  nb::class_<QueuePair>(m, "QueuePair", "A reliable connection without I/O; times in nanoseconds.")
      .def(nb::init<const QueuePairOptions&, MemoryRegions&>(), "options"_a, "memory"_a,
           nb::keep_alive<1, 3>())
      .def(
          "post",
          [](QueuePair& self, std::uint64_t id, Operation operation, const Array& local,
             std::optional<std::uint32_t> immediate, std::uint64_t remote_address, std::uint32_t rkey) {
            self.post({id, operation, view(local), immediate, remote_address, rkey});
          },
          "id"_a, "operation"_a, "local"_a, nb::kw_only(), "immediate"_a = nb::none(), "remote_address"_a = 0,
          "rkey"_a = 0, nb::keep_alive<1, 4>())
      .def(
          "post_receive",
          [](QueuePair& self, std::uint64_t id, const Array& buffer) {
            self.post_receive({id, view(buffer)});
          },
          "id"_a, "buffer"_a, nb::keep_alive<1, 3>())
      .def(
          "receive",
          [](QueuePair& self, const nb::bytes& transport, Time now) { self.receive(view(transport), now); },
          "transport"_a, "now"_a)
      .def(
          "transmit",
          [](QueuePair& self, Time now) -> std::optional<nb::bytes> {
            std::vector<std::byte> buffer(self.options().path_mtu + kMaxOverhead);
            const std::size_t size = self.transmit(buffer, now);
            if (size == 0) return std::nullopt;
            return copy({buffer.data(), size});
          },
          "now"_a, "The next packet to send, or None.")
      .def_prop_ro("deadline",
                   [](const QueuePair& self) -> std::optional<Time> {
                     const Time deadline = self.deadline();
                     return deadline == kNever ? std::nullopt : std::optional(deadline);
                   })
      .def("expire", &QueuePair::expire, "now"_a)
      .def("poll", &QueuePair::poll)
      .def_prop_ro("failed", &QueuePair::failed)
      .def_prop_ro("window", [](const QueuePair& self) { return self.requester().window(); })
      .def_prop_ro("stats", &QueuePair::stats);
}

// Waits for frames, timers or `timeout`, and handles them; what an event loop does for a rail.
void step(RdmaEndpoint& self, Duration timeout) {
  const nb::gil_scoped_release release;
  self.transmit(EventLoop::now());
  const Duration left = std::min(timeout, self.deadline() - EventLoop::now());
  const Duration wait = std::max<Duration>(0, left);
  const timespec limit{.tv_sec = wait / kSecond, .tv_nsec = wait % kSecond};
  const short blocked = self.blocked() ? POLLOUT : 0;
  pollfd ready{.fd = self.fd(), .events = static_cast<short>(POLLIN | blocked), .revents = 0};
  if (ppoll(&ready, 1, &limit, nullptr) < 0 && errno != EINTR) throw std::runtime_error("poll");
  const Time now = EventLoop::now();
  if (ready.revents & POLLOUT) self.on_writable();
  if (ready.revents & POLLIN) self.receive(now);
  self.expire(now);
  self.transmit(EventLoop::now());
}

void bind_endpoint(nb::module_& m) {
  nb::class_<RdmaEndpointStats>(m, "EndpointStats")
      .def_ro("frames_sent", &RdmaEndpointStats::frames_sent)
      .def_ro("bytes_sent", &RdmaEndpointStats::bytes_sent)
      .def_ro("frames_received", &RdmaEndpointStats::frames_received)
      .def_ro("bytes_received", &RdmaEndpointStats::bytes_received)
      .def_ro("refused", &RdmaEndpointStats::refused)
      .def_ro("strangers", &RdmaEndpointStats::strangers);
  nb::class_<RdmaEndpoint>(m, "Endpoint",
                           "Queue pairs on an interface, with their socket; addresses as integers.")
      .def(
          "__init__",
          [](RdmaEndpoint* self, const std::string& interface, Ipv4Address address, std::size_t path_mtu,
             std::size_t burst_bytes) {
            new (self) RdmaEndpoint({interface, address, path_mtu, burst_bytes});
          },
          "interface"_a, "address"_a, "path_mtu"_a = RdmaEndpointOptions{}.path_mtu,
          "burst_bytes"_a = RdmaEndpointOptions{}.burst_bytes)
      .def("reserve", &RdmaEndpoint::reserve_queue_pair_number,
           "A random queue pair number for a later connect.")
      .def(
          "connect",
          [](RdmaEndpoint& self, const QueuePairOptions& options, Ipv4Address peer, const nb::bytes& peer_mac)
              -> QueuePair& { return self.connect(options, peer, mac_of(peer_mac)); },
          "options"_a, "peer"_a, "peer_mac"_a, nb::rv_policy::reference_internal,
          "The queue pair; it keeps posted buffers alive, so keep it as long as the endpoint.")
      .def(
          "register",
          [](RdmaEndpoint& self, const Array& buffer, int access) {
            return self.memory().add(view(buffer), static_cast<std::uint8_t>(access));
          },
          "buffer"_a, "access"_a, nb::keep_alive<1, 2>(), "Registers a buffer for all queue pairs; its rkey.")
      .def_prop_ro("mac", [](const RdmaEndpoint& self) { return copy(std::as_bytes(std::span(self.mac()))); })
      .def("step", &step, "timeout_ns"_a, "Send, wait for something to happen, handle it.")
      .def_prop_ro("stats", &RdmaEndpoint::stats, nb::rv_policy::copy);
}

}  // namespace
}  // namespace railweave::roce

namespace railweave {

void bind_roce(nb::module_& m) {
  nb::module_ roce = m.def_submodule("roce", "User-space RoCEv2 reliable connections");
  roce::bind_codec(roce);
  roce::bind_frame(roce);
  roce::bind_work(roce);
  roce::bind_queue_pair(roce);
  roce::bind_endpoint(roce);
}

}  // namespace railweave
