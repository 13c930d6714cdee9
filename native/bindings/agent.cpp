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

#include "bindings/agent_values.hpp"
#include "rails/guarded_rail.hpp"
#include "rails/ina_rail.hpp"
#include "rails/rdma_transport.hpp"
#include "rails/ring_rail.hpp"
#include "rails/tcp_transport.hpp"

namespace nb = nanobind;

namespace railweave {
namespace {

constexpr double kPeerTimeoutS = 5;
constexpr std::size_t kMostKeptBytes = std::size_t{256} << 20;
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
                                                std::uint64_t rate_bps, double peer_timeout_s, bool mptcp) {
    TcpTransport* transport = nullptr;
    const std::size_t index = agent_.add_rail(
        std::move(name), {address, interface}, rate_bps, [&](EventLoop& loop, RailListener& listener) {
          const TcpTransportOptions options{
              .local = {.address = address, .interface = interface, .mptcp = mptcp},
              .liveness = liveness(peer_timeout_s)};
          auto made = std::make_unique<TcpTransport>(loop, options);
          transport = made.get();
          return std::make_unique<RingRail>(std::move(made), listener, RingRailOptions{.rate_bps = rate_bps});
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
    const std::size_t index = agent_.add_rail(
        std::move(name), {address, interface}, rate_bps, [&](EventLoop& loop, RailListener& listener) {
          const RdmaTransportOptions options{.interface = interface,
                                             .address = address,
                                             .rate_bps = rate_bps,
                                             .liveness = liveness(peer_timeout_s)};
          auto made = std::make_unique<RdmaTransport>(loop, options, agent_.rank(), agent_.world_size());
          transport = made.get();
          return std::make_unique<RingRail>(std::move(made), listener, RingRailOptions{.rate_bps = rate_bps});
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
    const std::size_t index = agent_.add_rail(
        std::move(name), {address, interface}, rate_bps, [&](EventLoop& loop, RailListener& listener) {
          auto guarded = std::make_unique<GuardedRail>(listener);
          for (int attempt = 1;; ++attempt) {
            auto made = std::make_unique<InaRail>(loop, options, guarded->listener());
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

  void enable_recovery(std::uint64_t token, const std::vector<Addresses>& members,
                       std::vector<std::uint64_t> rates_bps, double peer_timeout_s,
                       std::size_t most_kept_bytes) {
    std::vector<std::vector<SocketAddress>> native;
    for (const Addresses& rail : members) {
      auto& sockets = native.emplace_back();
      for (const auto& [address, port] : rail) sockets.push_back({.address = address, .port = port});
    }
    agent_.enable_recovery(token, native, std::move(rates_bps),
                           static_cast<Duration>(peer_timeout_s * kSecond), most_kept_bytes);
  }

  std::pair<std::uint32_t, std::size_t> plan_point(std::optional<double> timeout_s) {
    PlanPoint point{};
    const nb::gil_scoped_release release;
    if (!wait_checking_signals([&](Time latest) { return agent_.plan_point(point, latest); },
                               deadline_after(timeout_s)))
      raise_timeout(
          "the ranks have not agreed on the rails that are up, or completed earlier calls, in time");
    return {point.op_index, point.changes};
  }

  bool wait_change(std::size_t since, std::optional<double> timeout_s) {
    const nb::gil_scoped_release release;
    return wait_checking_signals([&](Time latest) { return agent_.wait_change(since, latest); },
                                 deadline_after(timeout_s));
  }

  bool submit(std::uint32_t op_index, const CallDescription& call, const InputArray& input,
              const OutputArray& output, const Parts& parts, bool start_now, double expected_s) {
    std::vector<Part> native;
    for (const auto& [rail, offset, count] : parts)
      native.push_back({.rail = rail, .offset = offset, .count = count});
    const Submission submission{.call = call,
                                .input = static_cast<const std::byte*>(input.data()),
                                .output = static_cast<std::byte*>(output.data()),
                                .parts = native,
                                .expected = static_cast<Duration>(expected_s * kSecond)};
    check_arrays(submission, input.nbytes(), output.nbytes());
    const nb::gil_scoped_release release;
    return agent_.submit(submission, op_index, start_now);
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

  void check_arrays(const Submission& submission, std::size_t input_bytes, std::size_t output_bytes) const {
    const CallDescription& call = submission.call;
    const auto [reads, writes] = bytes_of(call, agent_.rank(), agent_.world_size());
    if ((reads > 0 && input_bytes != reads) || output_bytes != writes) {
      throw std::invalid_argument("arrays are of " + std::to_string(input_bytes) + " and " +
                                  std::to_string(output_bytes) + " bytes instead of " +
                                  std::to_string(reads) + " and " + std::to_string(writes));
    }
    const std::byte* from = submission.input;
    const std::byte* to = submission.output;
    if (reads == 0 || from >= to + writes || to >= from + reads) return;
    // One side may lie in the other where both hold the same: the own shard's place, or all of it.
    const auto rank = static_cast<std::size_t>(agent_.rank());
    if (reads > writes ? from + rank * writes == to : to + (writes > reads ? rank * reads : 0) == from)
      return;
    throw std::invalid_argument("out overlaps the input without being it, or this rank's shard of it");
  }

  // Called without the GIL; takes it for good.
  [[noreturn]] static void raise_timeout(const char* message) {
    const nb::gil_scoped_acquire acquire;
    PyErr_SetString(PyExc_TimeoutError, message);
    throw nb::python_error();
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

}  // namespace

void bind_agent(nb::module_& m) {
  nb::module_ sub = m.def_submodule("agent", "The agent of a communicator");
  bind_agent_values(sub);
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<PythonAgent>(sub, "Agent", "Owns the event loop and the rails of one communicator")
      .def(nb::init<int, int>(), nb::arg("rank"), nb::arg("world_size"))
      .def("add_tcp", &PythonAgent::add_tcp, nb::arg("name"), nb::arg("address"), nb::arg("interface"),
           nb::arg("rate_bps") = 0, nb::arg("peer_timeout_s") = kPeerTimeoutS, nb::arg("mptcp") = false,
           Release(),
           "Open a TCP rail that listens on the address; (rail, port). A peer that gives no sign of life for "
           "peer_timeout_s is gone; 0: never. An empty interface binds to none, as Multipath TCP wants it")
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
      .def(
          "open_control", [](PythonAgent& self, std::size_t rail) { return self.agent().open_control(rail); },
          nb::arg("rail"), Release(),
          "Open what recovery needs on a rail, rail by rail; the port to offer, of UDP (control) and TCP "
          "(repair)")
      .def("enable_recovery", &PythonAgent::enable_recovery, nb::arg("token"), nb::arg("members"),
           nb::arg("rates_bps"), nb::arg("peer_timeout_s") = kPeerTimeoutS,
           nb::arg("most_kept_bytes") = kMostKeptBytes, Release(),
           "From now on rails may die and come back. `members`: all ranks' (address, control port), by rail "
           "and rank. `rates_bps`, by rail, the same on all ranks, 0 if unknown: how repairs are spread. "
           "Once, after all rails are connected and before the first call. "
           "Calls wait while earlier ones keep more than `most_kept_bytes` of results for other ranks")
      .def(
          "forgo_recovery", [](PythonAgent& self) { self.agent().forgo_recovery(); }, Release(),
          "Recovery will not be enabled: a rail that fails, or has failed, ends the communicator")
      .def("plan_point", &PythonAgent::plan_point, nb::arg("timeout_s") = nb::none(),
           "(op index of the next call, number of changes known), to plan it by. Waits while the ranks agree "
           "on which rails live, and for earlier calls' memory. TimeoutError")
      .def(
          "changes", [](PythonAgent& self, std::size_t since) { return self.agent().changes(since); },
          nb::arg("since") = 0, "The changes after so many, in order")
      .def("wait_change", &PythonAgent::wait_change, nb::arg("since"), nb::arg("timeout_s") = nb::none(),
           "Wait until there are more than so many changes or everything has ended; False if the time is up")
      .def(
          "set_obstacle",
          [](PythonAgent& self, std::size_t rail, const std::string& text) {
            self.agent().set_obstacle(rail, text);
          },
          nb::arg("rail"), nb::arg("text"), Release(),
          "Something stands in the way of a rail on this rank, until it is cleared by ''")
      .def(
          "suspect",
          [](PythonAgent& self, std::size_t rail, const std::string& reason) {
            self.agent().suspect(rail, reason);
          },
          nb::arg("rail"), nb::arg("reason"), Release(),
          "A rail cannot go on by itself: with recovery, it is excluded until it has been restarted")
      .def(
          "rail_states", [](PythonAgent& self) { return self.agent().rail_states(); }, Release(),
          "RailState of every rail")
      .def("submit", &PythonAgent::submit, nb::arg("op_index"), nb::arg("call"), nb::arg("input"),
           nb::arg("output"), nb::arg("parts"), nb::arg("start_now") = true, nb::arg("expected_s") = 0.0,
           "Start the call at the plan point over parts (rail, offset, count), in elements (of a shard for "
           "reduce_scatter and all_gather). Keep both arrays alive until it is done. Without start_now it "
           "starts with the first wait. A rail that takes much longer than expected_s (0: unknown) counts as "
           "dead. False if the ranks have agreed on other rails since the plan point: take another. "
           "RuntimeError if there was none")
      .def(
          "next_op", [](PythonAgent& self) { return self.agent().next_op(); }, "The next call's op index")
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
          "End the communicator with this failure, here and, where a rail can notify them, on the peers")
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
          "drain_records", [](PythonAgent& self) { return self.agent().drain_records(Records::kUser); },
          "The slices that have ended since the last call")
      .def(
          "drain_measurements",
          [](PythonAgent& self) { return self.agent().drain_records(Records::kStriper); },
          "The same for the striper, whatever others have drained");
}

}  // namespace railweave
