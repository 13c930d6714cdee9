// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.roce: the RoCEv2 codec and queue pair for tests.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/values.hpp"
#include "core/crc32.hpp"
#include "loop/event_loop.hpp"
#include "rails/rdma_endpoint.hpp"
#include "rigs/rig.hpp"
#include "roce/frame.hpp"
#include "roce/memory.hpp"
#include "roce/packet.hpp"
#include "roce/queue_pair.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave::roce {
namespace {

using Array = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

using railweave::view;
MutableBytes view(const Array& array) { return {reinterpret_cast<std::byte*>(array.data()), array.size()}; }

/// Packets and checksums.
void bind_codec(nb::module_& m) {
  RAILWEAVE_ENUM(m, Operation, kSend, kWrite, kReadResponse, kAcknowledge)
      .value("READ", Operation::kReadRequest);
  m.attr("UDP_PORT") = kUdpPort;
  m.def("sequence_near", &sequence_near, "reference"_a, "psn"_a,
        "The 64-bit sequence nearest to reference with this PSN.");
  m.def("crc32", [](const nb::bytes& bytes) { return ~crc32_update(kCrcStart, view(bytes)); }, "bytes"_a);
  m.def(
      "crc32_behind",
      [](const nb::bytes& head, const nb::bytes& bytes) {
        CrcHead words;
        if (head.size() != sizeof words) throw std::invalid_argument("a head has 48 bytes");
        std::memcpy(words.data(), head.c_str(), sizeof words);
        std::vector<std::byte> copy(bytes.size());
        const std::uint32_t crc = ~crc32_copy_behind(words, view(bytes), copy.data());
        return nb::make_tuple(~crc32_behind(words, view(bytes)), crc, to_python(copy));
      },
      "head"_a, "bytes"_a,
      "crc32 of 48 bytes and those behind them, twice, and the copy that the second makes.");
  m.def(
      "crc32_by_table", [](const nb::bytes& bytes) { return ~crc32_update_by_table(kCrcStart, view(bytes)); },
      "bytes"_a, "The portable path of crc32.");
}

void bind_work(nb::module_& m) {
  RAILWEAVE_ENUM(m, CompletionKind, kSend, kWrite, kReceive, kReceiveWrite);
  RAILWEAVE_ENUM(m, Status, kSuccess, kFlushed, kRetriesExceeded, kRnrRetriesExceeded, kRemoteAccessError,
                 kRemoteInvalidRequest, kRemoteOperationalError, kBadResponse);
  nb::class_<Completion>(m, "Completion")
      .def(RAILWEAVE_RO(Completion, id, kind, status, byte_count, immediate));
  nb::class_<QueuePairStats>(m, "QueuePairStats")
      .def(RAILWEAVE_RO(QueuePairStats, packets_sent, packets_received, retransmissions, timeouts, naks_sent,
                        naks_received, duplicates, out_of_order, refused));
  const QueuePairOptions defaults;
  nb::class_<QueuePairOptions>(m, "QueuePairOptions")
      .def(nb::init<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::size_t, std::int64_t,
                    std::int64_t, std::int64_t, Duration, Duration, Duration, Duration, int, int,
                    std::uint8_t>(),
           "qpn"_a, "peer_qpn"_a, "send_psn"_a = 0, "receive_psn"_a = 0, nb::kw_only(),
           "path_mtu"_a = defaults.path_mtu, "window"_a = defaults.window,
           "min_window"_a = defaults.min_window, "most_window"_a = defaults.most_window,
           "window_time"_a = defaults.window_time, "first_timeout"_a = defaults.first_timeout,
           "min_timeout"_a = defaults.min_timeout, "max_timeout"_a = defaults.max_timeout,
           "retries"_a = defaults.retries, "rnr_retries"_a = defaults.rnr_retries,
           "rnr_timer"_a = defaults.rnr_timer, "Times in nanoseconds, windows in packets.")
      .def_ro("path_mtu", &QueuePairOptions::path_mtu);
}

void bind_queue_pair(nb::module_& m) {
  nb::class_<MemoryRegions>(m, "MemoryRegions")
      .def(nb::init<>())
      .def(
          "add",
          [](MemoryRegions& self, const Array& buffer, std::uint32_t qpn) {
            return self.add(view(buffer), qpn);
          },
          "buffer"_a, "qpn"_a = MemoryRegions::kAnyQueuePair, nb::keep_alive<1, 2>(),
          "Registers a buffer; returns its rkey. Its remote address is the buffer's own.")
      .def("remove", &MemoryRegions::remove, "rkey"_a);
  nb::class_<QueuePair>(m, "QueuePair", "A reliable connection without I/O; times in nanoseconds.")
      .def(nb::init<const QueuePairOptions&, MemoryRegions&>(), "options"_a, "memory"_a,
           nb::keep_alive<1, 3>())
      .def(
          "post",
          [](QueuePair& self, std::uint64_t id, Operation operation, const Array& local,
             std::optional<std::uint32_t> immediate, std::uint64_t remote_address, std::uint32_t rkey,
             bool quiet) { self.post({id, operation, view(local), immediate, remote_address, rkey, quiet}); },
          "id"_a, "operation"_a, "local"_a, nb::kw_only(), "immediate"_a = nb::none(), "remote_address"_a = 0,
          "rkey"_a = 0, "quiet"_a = false, nb::keep_alive<1, 4>())
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
          [](QueuePair& self, Time now) {
            std::vector<std::byte> buffer(self.options().path_mtu + kMaxOverhead);
            const std::size_t size = self.transmit(buffer, now);
            return size == 0 ? std::nullopt : std::optional(to_python({buffer.data(), size}));
          },
          "now"_a, "The next packet to send, or None.")
      .def_prop_ro("deadline", [](const QueuePair& self) { return or_none(self.deadline()); })
      .def("expire", &QueuePair::expire, "now"_a)
      .def("poll", &QueuePair::poll)
      .def_prop_ro("failed", &QueuePair::failed)
      .def_prop_ro("window", [](const QueuePair& self) { return self.requester().window(); })
      .def_prop_ro("stats", &QueuePair::stats);
}

// Waits for frames, timers or `timeout`, and handles them, like an event loop.
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
      .def(RAILWEAVE_RO(RdmaEndpointStats, frames_sent, bytes_sent, frames_received, bytes_received, refused,
                        strangers, segmentation_refused));
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
          "register", [](RdmaEndpoint& self, const Array& buffer) { return self.memory().add(view(buffer)); },
          "buffer"_a, nb::keep_alive<1, 2>(), "Registers a buffer for all queue pairs; its rkey.")
      .def_prop_ro("mac",
                   [](const RdmaEndpoint& self) { return to_python(std::as_bytes(std::span(self.mac()))); })
      .def("step", &step, "timeout_ns"_a, "Send, wait for something to happen, handle it.")
      .def_prop_ro("stats", &RdmaEndpoint::stats, nb::rv_policy::copy);
}

}  // namespace
}  // namespace railweave::roce

namespace railweave {

void bind_roce(nb::module_& m) {
  nb::module_ roce = rig_submodule(m, "roce", "User-space RoCEv2 reliable connections");
  roce::bind_codec(roce);
  roce::bind_work(roce);
  roce::bind_queue_pair(roce);
  roce::bind_endpoint(roce);
}

}  // namespace railweave
