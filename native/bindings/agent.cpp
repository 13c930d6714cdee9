// SPDX-License-Identifier: Apache-2.0
// railweave._native.agent: the agent of a communicator. Nothing here holds the GIL while it waits.
#include "agent/agent.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <map>
#include <system_error>
#include <tuple>

#include "rails/guarded_rail.hpp"
#include "rails/ina_rail.hpp"
#include "rails/rdma_transport.hpp"
#include "rails/ring_rail.hpp"
#include "rails/tcp_transport.hpp"

namespace nb = nanobind;

namespace railweave {
namespace {

constexpr double kPeerTimeoutS = 5;
constexpr int kPortAttempts = 16;  // a UDP port whose TCP twin is taken is given back

using InputArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using OutputArray = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Parts = std::vector<std::tuple<std::size_t, std::size_t, std::size_t>>;
// group, virtual address, child, slots, lanes
using Place = std::tuple<std::uint16_t, std::string, std::uint8_t, std::uint32_t, std::uint32_t>;
using Addresses = std::vector<std::pair<std::string, std::uint16_t>>;
using RdmaMembers = std::vector<std::tuple<std::string, std::string, std::vector<std::uint32_t>>>;

Liveness liveness(double peer_timeout_s) {
  const auto timeout = static_cast<Duration>(peer_timeout_s * kSecond);
  const Duration interval = Liveness{}.interval;
  return {.timeout = timeout, .interval = timeout > 0 ? std::min(interval, timeout / 4) : interval};
}

Time deadline_after(std::optional<double> seconds) {
  if (!seconds || *seconds >= 1e9) return kNever;
  return EventLoop::now() + static_cast<Duration>(std::max(0.0, *seconds) * kSecond);
}

// What Python sees of an agent. It remembers which transport is behind which rail, for those that are
// connected later.
class PythonAgent {
 public:
  PythonAgent(int rank, int world_size) : agent_(rank, world_size) {}

  Agent& agent() { return agent_; }

  std::pair<std::size_t, std::uint16_t> add_tcp(std::string name, std::string address, std::string interface,
                                                std::uint64_t rate_bps, double peer_timeout_s) {
    TcpTransport* transport = nullptr;
    const std::size_t index =
        agent_.add_rail(std::move(name), [&](std::size_t rail, EventLoop& loop, RailListener& listener) {
          const TcpTransportOptions options{.local = {.address = address, .interface = interface},
                                            .liveness = liveness(peer_timeout_s)};
          auto made = std::make_unique<TcpTransport>(loop, options);
          transport = made.get();
          return std::make_unique<RingRail>(rail, std::move(made), listener,
                                            RingRailOptions{.rate_bps = rate_bps});
        });
    tcp_[index] = transport;
    return {index, transport->port()};
  }

  // Returns the ranks that are missing when the time is up.
  std::vector<int> connect_tcp(std::size_t rail, std::uint64_t token, const Addresses& members,
                               double timeout_s) {
    TcpTransport& transport = *tcp_.at(rail);
    std::vector<SocketAddress> sockets;
    for (const auto& [address, port] : members) sockets.push_back({.address = address, .port = port});
    agent_.on_loop([&] { transport.connect(token, agent_.rank(), sockets, EventLoop::now()); });
    wait_checking_signals(
        [&](Time latest) { return agent_.wait_until([&] { return transport.missing().empty(); }, latest); },
        deadline_after(timeout_s));
    std::vector<int> missing;
    agent_.on_loop([&] { missing = transport.missing(); });
    return missing;
  }

  std::pair<std::size_t, std::vector<std::uint32_t>> add_rdma(std::string name, std::string address,
                                                              std::string interface, std::uint64_t rate_bps,
                                                              double peer_timeout_s) {
    RdmaTransport* transport = nullptr;
    const std::size_t index =
        agent_.add_rail(std::move(name), [&](std::size_t rail, EventLoop& loop, RailListener& listener) {
          const RdmaTransportOptions options{.interface = interface,
                                             .address = address,
                                             .rate_bps = rate_bps,
                                             .liveness = liveness(peer_timeout_s)};
          auto made = std::make_unique<RdmaTransport>(loop, options, agent_.rank(), agent_.world_size());
          transport = made.get();
          return std::make_unique<RingRail>(rail, std::move(made), listener,
                                            RingRailOptions{.rate_bps = rate_bps});
        });
    rdma_[index] = transport;
    return {index, transport->queue_pairs()};
  }

  // Nothing to wait for: whoever is ready first keeps trying.
  void connect_rdma(std::size_t rail, const RdmaMembers& members) {
    std::vector<RdmaMember> native;
    for (const auto& [address, mac, queue_pairs] : members)
      native.push_back({.address = address, .mac = mac, .queue_pairs = queue_pairs});
    agent_.on_loop([&] { rdma_.at(rail)->connect(native, EventLoop::now()); });
  }

  std::pair<std::size_t, std::uint16_t> add_ina(std::string name, std::string address, std::string interface,
                                                std::uint64_t rate_bps) {
    const InaRailOptions options{.address = address, .interface = interface, .rate_bps = rate_bps};
    InaRail* rail = nullptr;
    TcpTransport* control = nullptr;
    const std::size_t index =
        agent_.add_rail(std::move(name), [&](std::size_t place, EventLoop& loop, RailListener& listener) {
          auto guarded = std::make_unique<GuardedRail>(place, listener);
          for (int attempt = 1;; ++attempt) {
            auto made = std::make_unique<InaRail>(place, loop, options, guarded->listener());
            try {
              // One offer, one port: TCP listens where UDP results arrive. It shares the switch's fate, so
              // that silence says nothing of a peer: it waits for the switch, as the rail does.
              auto beside = std::make_unique<TcpTransport>(
                  loop, TcpTransportOptions{.local = {.address = address, .interface = interface},
                                            .port = made->port(),
                                            .liveness = {.timeout = 0, .interval = 0}});
              rail = made.get();
              control = beside.get();
              guarded->adopt(std::move(made), std::move(beside));
              return guarded;
            } catch (const std::system_error& error) {
              if (error.code() != std::errc::address_in_use || attempt == kPortAttempts) throw;
            }
          }
        });
    ina_[index] = rail;
    tcp_[index] = control;
    return {index, rail->port()};
  }

  void attach_ina(std::size_t rail, const std::vector<Place>& places) {
    std::vector<InaGroup> groups;
    for (const Place& place : places) groups.push_back(group_at(place));
    agent_.on_loop([&] { ina_.at(rail)->attach(groups); });
  }

  std::uint64_t pause_ina(std::size_t rail, std::uint16_t group) {
    std::uint64_t position = 0;
    agent_.on_loop([&] { position = ina_.at(rail)->pause(group, EventLoop::now()); });
    return position;
  }

  void resume_ina(std::size_t rail, std::uint16_t group, const Place& place, std::uint64_t resume_from) {
    agent_.on_loop([&] { ina_.at(rail)->resume(group, group_at(place), resume_from, EventLoop::now()); });
  }

  std::uint32_t submit(const CallDescription& call, const InputArray& input, const OutputArray& output,
                       const Parts& parts, bool start_now) {
    const std::size_t bytes = call.count * item_size(call.dtype);
    if (input.nbytes() != bytes || output.nbytes() != bytes)
      throw std::invalid_argument("arrays are not of this size");
    std::vector<Part> native;
    for (const auto& [rail, offset, count] : parts)
      native.push_back({.rail = rail, .offset = offset, .count = count});
    const auto* from = static_cast<const std::byte*>(input.data());
    auto* to = static_cast<std::byte*>(output.data());
    if (from != to && from < to + bytes && to < from + bytes) {
      throw std::invalid_argument("out overlaps the input without being it");
    }
    const nb::gil_scoped_release release;
    return agent_.submit(call, from, to, native, start_now);
  }

  // False: the time is up. A failure is for the caller to ask for.
  bool wait(std::uint32_t op_index, std::optional<double> timeout_s) {
    const nb::gil_scoped_release release;
    return wait_checking_signals([&](Time latest) { return agent_.wait(op_index, latest); },
                                 deadline_after(timeout_s));
  }

 private:
  InaGroup group_at(const Place& place) const {
    const auto& [group, virtual_address, child, slots, lanes] = place;
    return {.group = group,
            .virtual_address = virtual_address,
            .child = child,
            .slots = slots,
            .lanes = lanes,
            .world_size = agent_.world_size()};
  }

  // Called without the GIL; takes it when it is time to look at signals, whose handlers may raise.
  template <typename Wait>
  bool wait_checking_signals(const Wait& wait, Time latest) {
    for (;;) {
      switch (wait(latest)) {
        case Outcome::kDone:
          return true;
        case Outcome::kTimeout:
          return false;
        case Outcome::kInterrupted:
          const nb::gil_scoped_acquire acquire;
          if (PyErr_CheckSignals() != 0) throw nb::python_error();
      }
    }
  }

  std::map<std::size_t, TcpTransport*> tcp_;  // all owned by the agent's rails
  std::map<std::size_t, RdmaTransport*> rdma_;
  std::map<std::size_t, InaRail*> ina_;
  Agent agent_;
};

void bind_values(nb::module_& sub) {
  nb::enum_<FailureKind>(sub, "FailureKind")
      .value("PEER_LOST", FailureKind::kPeerLost)
      .value("MISMATCH", FailureKind::kMismatch)
      .value("RAIL_DOWN", FailureKind::kRailDown)
      .value("INTERNAL", FailureKind::kInternal)
      .value("SILENT", FailureKind::kSilent, "of a rail: its agent finds out which it is");
  nb::class_<Stall>(sub, "Stall",
                    "Contributions to a tree are silent; whether probes are answered, and by whom")
      .def_ro("group", &Stall::group)
      .def_ro("first_switch_ok", &Stall::first_switch_ok)
      .def_ro("root_ok", &Stall::root_ok);
  nb::class_<GroupStats>(sub, "GroupStats", "One aggregation tree's counts since it was formed")
      .def_ro("group", &GroupStats::group)
      .def_ro("slots", &GroupStats::slots)
      .def_ro("in_flight", &GroupStats::in_flight)
      .def_ro("window", &GroupStats::window)
      .def_ro("rtt_ns", &GroupStats::rtt)
      .def_ro("contributions", &GroupStats::contributions)
      .def_ro("results", &GroupStats::results)
      .def_ro("retransmissions", &GroupStats::retransmissions)
      .def_ro("early_retransmissions", &GroupStats::early_retransmissions)
      .def_ro("timeouts", &GroupStats::timeouts)
      .def_ro("stale", &GroupStats::stale)
      .def_ro("duplicates", &GroupStats::duplicates)
      .def_ro("mismatches", &GroupStats::mismatches)
      .def_ro("refused", &GroupStats::refused)
      .def_ro("probes_sent", &GroupStats::probes_sent)
      .def_ro("probes_answered", &GroupStats::probes_answered)
      .def_ro("nonfinite_chunks", &GroupStats::nonfinite_chunks)
      .def_ro("moves", &GroupStats::moves)
      .def_ro("error_bound", &GroupStats::error_bound);
  nb::class_<Failure>(sub, "Failure", "What has ended a communicator; `rank` is the peer concerned, or -1")
      .def(
          "__init__",
          [](Failure* self, FailureKind kind, int rank, std::string message, std::string rail) {
            new (self)
                Failure{.kind = kind, .rank = rank, .message = std::move(message), .rail = std::move(rail)};
          },
          nb::arg("kind"), nb::arg("rank"), nb::arg("message"), nb::arg("rail") = "")
      .def_ro("kind", &Failure::kind)
      .def_ro("rank", &Failure::rank)
      .def_ro("message", &Failure::message)
      .def_ro("rail", &Failure::rail, "where it happened; empty if not on a rail")
      .def_ro("by_peer", &Failure::by_peer, "of SILENT: the other end has ended the connection itself");
  nb::class_<RailStats>(sub, "RailStats",
                        "Counts since the rail was opened; `busy_ns` is time with a slice in progress")
      .def_ro("slices", &RailStats::slices)
      .def_ro("payload_bytes", &RailStats::payload_bytes)
      .def_ro("bytes_sent", &RailStats::bytes_sent)
      .def_ro("bytes_received", &RailStats::bytes_received)
      .def_ro("packets_sent", &RailStats::packets_sent)
      .def_ro("packets_received", &RailStats::packets_received)
      .def_ro("retransmissions", &RailStats::retransmissions)
      .def_ro("duplicates", &RailStats::duplicates)
      .def_ro("malformed", &RailStats::malformed)
      .def_ro("busy_ns", &RailStats::busy);
  nb::class_<SliceRecord>(sub, "SliceRecord",
                          "One slice as it went; times in nanoseconds of time.monotonic_ns()")
      .def_ro("op_index", &SliceRecord::op_index)
      .def_ro("rail", &SliceRecord::rail)
      .def_ro("start_ns", &SliceRecord::start)
      .def_ro("end_ns", &SliceRecord::end)
      .def_ro("bytes", &SliceRecord::bytes);
  nb::class_<CallDescription>(sub, "Call", "A collective call; the agent gives it its index")
      .def(
          "__init__",
          [](CallDescription* self, DType dtype, ReduceOp op, std::uint64_t count, Collective collective,
             std::uint16_t root) {
            new (self) CallDescription{.op_index = 0,
                                       .collective = collective,
                                       .dtype = dtype,
                                       .op = op,
                                       .root = root,
                                       .count = count};
          },
          nb::arg("dtype"), nb::arg("op"), nb::arg("count"), nb::arg("collective") = Collective::kAllReduce,
          nb::arg("root") = 0);
}

}  // namespace

void bind_agent(nb::module_& m) {
  nb::module_ sub = m.def_submodule("agent", "The agent of a communicator");
  bind_values(sub);
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<PythonAgent>(sub, "Agent", "Owns the event loop and the rails of one communicator")
      .def(nb::init<int, int>(), nb::arg("rank"), nb::arg("world_size"))
      .def("add_tcp", &PythonAgent::add_tcp, nb::arg("name"), nb::arg("address"), nb::arg("interface"),
           nb::arg("rate_bps") = 0, nb::arg("peer_timeout_s") = kPeerTimeoutS, Release(),
           "Open a TCP rail that listens on the address; (rail, port). A peer that gives no sign of life for "
           "peer_timeout_s is gone; 0: never")
      .def("connect_tcp", &PythonAgent::connect_tcp, nb::arg("rail"), nb::arg("token"), nb::arg("members"),
           nb::arg("timeout_s"), Release(),
           "Connect a tcp rail, or the control of an ina rail, to all ranks' (address, port); the ranks "
           "still missing at "
           "the end")
      .def("add_rdma", &PythonAgent::add_rdma, nb::arg("name"), nb::arg("address"), nb::arg("interface"),
           nb::arg("rate_bps") = 0, nb::arg("peer_timeout_s") = kPeerTimeoutS, Release(),
           "Open an RDMA rail on the interface of this address; (rail, queue pair number for each rank)")
      .def("connect_rdma", &PythonAgent::connect_rdma, nb::arg("rail"), nb::arg("members"), Release(),
           "Join with all ranks' (address, MAC, queue pair numbers)")
      .def("add_ina", &PythonAgent::add_ina, nb::arg("name"), nb::arg("address"), nb::arg("interface"),
           nb::arg("rate_bps") = 0, Release(), "Open an in-network rail on the address; (rail, UDP port)")
      .def("attach_ina", &PythonAgent::attach_ina, nb::arg("rail"), nb::arg("places"), Release(),
           "Take the rail's places in its aggregation trees: (group, virtual address, child, slots, lanes), "
           "in "
           "the order that all ranks share")
      .def("pause_ina", &PythonAgent::pause_ina, nb::arg("rail"), nb::arg("group"), Release(),
           "Stop the tree of this group; the lowest chunk without a result since it was formed")
      .def("resume_ina", &PythonAgent::resume_ina, nb::arg("rail"), nb::arg("group"), nb::arg("place"),
           nb::arg("resume_from"), Release(),
           "The tree of the paused group goes on at another place from that chunk. ValueError if it cannot")
      .def("submit", &PythonAgent::submit, nb::arg("call"), nb::arg("input"), nb::arg("output"),
           nb::arg("parts"), nb::arg("start_now") = true,
           "Start a collective over parts (rail, offset, count), in elements; its op index. Keep both arrays "
           "alive until "
           "it is done. Without start_now it starts with the first wait")
      .def("wait", &PythonAgent::wait, nb::arg("op_index"), nb::arg("timeout_s") = nb::none(),
           "Wait until the call is done or has failed; False if the time is up")
      .def(
          "done", [](PythonAgent& self, std::uint32_t op) { return self.agent().done(op); },
          nb::arg("op_index"))
      .def(
          "lagging", [](PythonAgent& self, std::uint32_t op) { return self.agent().lagging(op); },
          nb::arg("op_index"), "The rails whose parts of a pending call are not complete")
      .def(
          "failure_of", [](PythonAgent& self, std::uint32_t op) { return self.agent().failure_of(op); },
          nb::arg("op_index"), "Why this call failed; None if it is done or pending")
      .def(
          "failure", [](PythonAgent& self) { return self.agent().failure(); },
          "Why the communicator has ended, if so")
      .def(
          "fail", [](PythonAgent& self, const Failure& failure) { self.agent().fail(failure); },
          nb::arg("failure"), Release(),
          "End everything with this failure, here and, where a rail can tell them, on the peers")
      .def(
          "close",
          [](PythonAgent& self, double linger_s) {
            self.agent().close(static_cast<Duration>(linger_s * kSecond));
          },
          nb::arg("linger_s") = 0.5, Release(), "Say goodbye and stop")
      .def(
          "stats", [](PythonAgent& self) { return self.agent().stats(); }, Release(),
          "RailStats of every rail")
      .def(
          "groups", [](PythonAgent& self) { return self.agent().groups(); }, Release(),
          "GroupStats of every rail's trees")
      .def(
          "next_stall",
          [](PythonAgent& self, double timeout_s) {
            return self.agent().next_stall(deadline_after(timeout_s));
          },
          nb::arg("timeout_s"), Release(),
          "(rail, Stall): wait for the next one; None after the timeout, or when the agent is closed")
      .def(
          "drain_records", [](PythonAgent& self) { return self.agent().drain_records(); },
          "The slices that have ended since the last call");
}

}  // namespace railweave
