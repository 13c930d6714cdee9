// SPDX-License-Identifier: Apache-2.0
// railweave._native.agent: the agent of a communicator. No method holds the GIL while it waits.
#include "bindings/agent.hpp"

namespace nb = nanobind;
using namespace nb::literals;

RAILWEAVE_TUPLE(railweave::PlanPoint, op_index, changes)

namespace railweave {
namespace {

// Work of the endpoint's thread as Python sees it.
nb::object python_work(const EndpointWork& work) {
  return nb::make_tuple(work.kind, work.incarnation, work.dtype, work.op, to_python(work.input),
                        work.position);
}

void bind_endpoint_rail(nb::module_& sub) {
  using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
  nb::enum_<EndpointWork::Kind>(sub, "EndpointWork", "The next work of an endpoint's thread")
      .value("CALL", EndpointWork::Kind::kCall)
      .value("RESTART", EndpointWork::Kind::kRestart)
      .value("HALT", EndpointWork::Kind::kHalt);
  nb::class_<EndpointRail>(sub, "EndpointRail",
                           "The rail of an in-network algorithm, for the thread of its endpoint")
      .def("work_descriptor", &EndpointRail::work_descriptor,
           "A descriptor that is readable while there may be work")
      .def(
          "take",
          [](EndpointRail& self) {
            nb::list all;
            for (const EndpointWork& work : self.take()) all.append(python_work(work));
            return all;
          },
          "The work since the last call: (kind, incarnation, dtype, op, input, position)")
      .def(
          "reserve", &EndpointRail::reserve, "incarnation"_a, "position"_a,
          "Packets before the position are used from now on. False if the rail was halted: send none of them")
      .def(
          "count",
          [](EndpointRail& self, std::uint64_t sent, std::uint64_t sent_bytes, std::uint64_t resent,
             std::uint64_t resent_bytes, std::uint64_t received, std::uint64_t received_bytes) {
            self.count({sent, sent_bytes, resent, resent_bytes, received, received_bytes});
          },
          "sent"_a, "sent_bytes"_a, "resent"_a, "resent_bytes"_a, "received"_a, "received_bytes"_a,
          "Count datagrams, and their bytes without headers")
      .def(
          "finish",
          [](EndpointRail& self, std::uint32_t incarnation, const Array& result) {
            const auto* data = static_cast<const std::byte*>(result.data());
            self.finish(incarnation, {data, data + result.nbytes()});
          },
          "incarnation"_a, "result"_a, "Complete the oldest call")
      .def("fail", &EndpointRail::fail, "incarnation"_a, "reason"_a,
           "The endpoint cannot go on in this incarnation");
}

// Binds a method of the agent as a method of Python's object.
template <typename R, typename... Args>
auto of_agent(R (Agent::*member)(Args...)) {
  return [member](PythonAgent& self, Args... args) -> R {
    return (self.agent().*member)(std::forward<Args>(args)...);
  };
}
template <typename R, typename... Args>
auto of_agent(R (Agent::*member)(Args...) const) {
  return [member](PythonAgent& self, Args... args) -> R {
    return (self.agent().*member)(std::forward<Args>(args)...);
  };
}

}  // namespace

void bind_agent(nb::module_& m) {
  nb::module_ sub = m.def_submodule("agent", "The agent of a communicator");
  bind_agent_values(sub);
  bind_endpoint_rail(sub);
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<PythonAgent>(sub, "Agent", "Owns the event loop and the rails of one communicator")
      .def(nb::init<int, int>(), "rank"_a, "world_size"_a)
      .def("set_secret", &PythonAgent::set_secret, "secret"_a,
           "The job's 32 bytes, by which its ranks know each other: once, before rails are attached or "
           "connected. ValueError")
      .def("add_tcp", &PythonAgent::add_tcp, "name"_a, "address"_a, "interface"_a, "rate_bps"_a = 0,
           "peer_timeout_s"_a = kPeerTimeoutS, "mptcp"_a = false, Release(),
           "Open a TCP rail that listens on the address; (rail, port). A peer that gives no sign of life for "
           "peer_timeout_s is gone; 0: never. An empty interface binds to none, as Multipath TCP wants it")
      .def("connect_tcp", &PythonAgent::connect_tcp, "rail"_a, "members"_a, "timeout_s"_a, Release(),
           "Connect a tcp rail, or the control of an ina rail, to all ranks' (address, port); the ranks "
           "still missing at "
           "the end")
      .def("last_refusal", &PythonAgent::last_refusal, "rail"_a, Release(),
           "Why the last dial of a tcp rail, or of the control of an ina rail, failed; '' if none did")
      .def(
          "add_rdma", &PythonAgent::add_rdma, "name"_a, "address"_a, "interface"_a, "rate_bps"_a = 0,
          "peer_timeout_s"_a = kPeerTimeoutS, "sums"_a = false, "place"_a = RdmaPlace::kUserSpace,
          "traffic_class"_a = 0, Release(),
          "Open an RDMA rail on the interface of this address; (rail, queue pair number for each rank). With "
          "`sums` it offers connections that a switch may add up")
      .def("rdma_place", &PythonAgent::rdma_place, "rail"_a,
           "Whether an RDMA rail is on a device, and in words: on which, or why on none")
      .def("sum_numbers", &PythonAgent::sum_numbers, "rail"_a,
           "What an RDMA rail offers for sums: (out, into, alias)")
      .def("sum_rdma", &PythonAgent::sum_rdma, "rail"_a, "members"_a, "window_packets"_a, Release(),
           "A switch adds up the connections of all ranks' (out, into, alias): before connect_rdma")
      .def("connect_rdma", &PythonAgent::connect_rdma, "rail"_a, "members"_a,
           "devices"_a = std::vector<std::size_t>{}, Release(),
           "Join with all ranks' (address, MAC, queue pair numbers); `devices`: the ranks on a device")
      .def("add_ina", &PythonAgent::add_ina, "name"_a, "address"_a, "interface"_a, "rate_bps"_a = 0,
           Release(), "Open an in-network rail on the address; (rail, UDP port)")
      .def("attach_ina", &PythonAgent::attach_ina, "rail"_a, "places"_a, "members"_a, "roots"_a = 0,
           "redo"_a = false, Release(),
           "Take the rail's places in its aggregation trees: (group, virtual address, child, slots, lanes), "
           "in the order that all ranks share; `members`: all ranks' (address, port) on the rail, or none if "
           "nothing is to be multicast; `roots`: how many of them multicast at once in an allgather, 0: all; "
           "`redo`: "
           "whether somebody moves a tree that has a wrong sum (`Stall.spoilt`), else the rail fails")
      .def("compose_ina", &PythonAgent::compose_ina, "rail"_a, "members"_a, "lanes"_a, Release(),
           "Form a ring of members, each a list of ranks: racks, whose places `attach_ina` takes, in which "
           "ranks "
           "count from 0 in this order, and single ranks, which have none; the ranks of the own one. "
           "Before `connect_tcp`. ValueError")
      .def("add_algorithm", &PythonAgent::add_algorithm, "name"_a, "address"_a, "interface"_a,
           "rate_bps"_a = 0, Release(), "Add a rail whose slices an endpoint carries, and return its index")
      .def("endpoint", &PythonAgent::endpoint, "rail"_a, nb::rv_policy::reference_internal,
           "The rail, for the thread of its endpoint")
      .def("pause_ina", &PythonAgent::pause_ina, "rail"_a, "group"_a, Release(),
           "Stop the tree of this group; the lowest chunk without a result since it was formed")
      .def("resume_ina", &PythonAgent::resume_ina, "rail"_a, "group"_a, "place"_a, "resume_from"_a, Release(),
           "The tree of the paused group goes on at another place from that chunk. ValueError if it cannot")
      .def(
          "set_spin", &PythonAgent::set_spin, "seconds"_a,
          "How long whoever waits for a small call looks for its end before it sleeps; before the first call")
      .def("progress_on", &PythonAgent::progress_on, "cpus"_a, Release(),
           "From now on a thread of the agent's own does all the work of calls, on these CPUs alone, and "
           "spins as set; whoever waits sleeps. With several CPUs the trees of an ina rail that is attached "
           "later get threads beside it, one CPU each. ValueError for CPUs that this process may not use")
      .def("open_control", of_agent(&Agent::open_control), "rail"_a, Release(),
           "Open what recovery needs on a rail, rail by rail; the port to offer, of UDP (control) and TCP "
           "(repair)")
      .def("enable_recovery", &PythonAgent::enable_recovery, "members"_a, "rates_bps"_a,
           "peer_timeout_s"_a = kPeerTimeoutS, "most_kept_bytes"_a = kMostKeptBytes, Release(),
           "From now on rails may die and come back. `members`: all ranks' (address, control port), by rail "
           "and rank. `rates_bps`, by rail, the same on all ranks, 0 if unknown: how repairs are spread. "
           "Once, after all rails are connected and before the first call. "
           "A call waits while earlier calls, without the largest of them, keep `most_kept_bytes` for other "
           "ranks")
      .def("forgo_recovery", of_agent(&Agent::forgo_recovery), Release(),
           "Recovery will not be enabled: a rail that fails, or has failed, ends the communicator")
      .def("plan_point", &PythonAgent::plan_point, "timeout_s"_a = nb::none(),
           "(op index of the next call, number of changes known), to plan it by. Waits while the ranks agree "
           "on which rails live, and for earlier calls' memory. TimeoutError")
      .def("changes", of_agent(&Agent::changes), "since"_a = 0,
           "The changes after the first `since`, in order. Forgets the first `since`")
      .def("wait_change", &PythonAgent::wait_change, "since"_a, "timeout_s"_a = nb::none(),
           "Wait until there are more than so many changes or everything has ended; False if the time is up")
      .def("set_obstacle", of_agent(&Agent::set_obstacle), "rail"_a, "text"_a, Release(),
           "Something stands in the way of a rail on this rank, until it is cleared by ''")
      .def("suspect", of_agent(&Agent::suspect), "rail"_a, "reason"_a, Release(),
           "A rail cannot go on by itself: with recovery, it is excluded until it has been restarted")
      .def("rail_states", of_agent(&Agent::rail_states), Release(), "RailState of every rail")
      .def("submit", &PythonAgent::submit, "planned_from"_a, "call"_a, "input"_a, "output"_a, "parts"_a,
           "start_now"_a = true, "expected_s"_a = 0.0,
           "Start the next call, planned from (op index, number of changes known), over parts (rail, offset, "
           "count), in elements (of a shard for reduce_scatter and all_gather). Keep both arrays alive until "
           "it is done. Without start_now it starts with the first wait. A rail that takes much longer than "
           "expected_s (0: unknown) counts as dead. False if the ranks have agreed on other rails since, or "
           "a plan point would have to be waited for: take that")
      .def("repeat", &PythonAgent::repeat, "call"_a, "op"_a, "input"_a, "ways"_a, "expected_s"_a, "changes"_a,
           "most"_a,
           "The next `most` calls, if they are all_reduces like this one of `input`, may be made by `again`, "
           "each over the parts of the next one of `ways`, while so many changes are known. `op`: the "
           "operation's name")
      .def(
          "again", &PythonAgent::again, "x"_a.none(), "op"_a.none(), "out"_a.none(),
          "Make the next call if it is like the one to repeat, and wait for it. None: it is not, nothing has "
          "been done. -1: it is complete. Else its op index: it has failed, or has yet to be waited for")
      .def("stop_repeating", &PythonAgent::stop_repeating,
           "End what `repeat` allows; how many calls have been made by it")
      .def("next_op", of_agent(&Agent::next_op), "The next call's op index")
      .def("wait", &PythonAgent::wait, "op_index"_a, "timeout_s"_a = nb::none(),
           "Wait until the call is done or has failed; False if the time is up")
      .def("done", of_agent(&Agent::done), "op_index"_a)
      .def("lagging", of_agent(&Agent::lagging), "op_index"_a,
           "The rails whose parts of a pending call are not complete")
      .def("failure_of", of_agent(&Agent::failure_of), "op_index"_a,
           "Why this call failed; None if it is done or pending")
      .def("failure", of_agent(&Agent::failure), "Why the communicator has ended, if so")
      .def("fail", of_agent(&Agent::fail), "failure"_a, Release(),
           "End the communicator with this failure, here and, where a rail can notify them, on the peers")
      .def(
          "close", [](PythonAgent& self, double linger_s) { self.agent().close(nanoseconds(linger_s)); },
          "linger_s"_a = 0.5, Release(), "Say goodbye and stop")
      .def("stats", of_agent(&Agent::stats), Release(), "RailStats of every rail")
      .def("groups", of_agent(&Agent::groups), Release(), "GroupStats of every rail's trees")
      .def(
          "next_stall",
          [](PythonAgent& self, double timeout_s) {
            return self.agent().next_stall(deadline_after(timeout_s));
          },
          "timeout_s"_a, Release(),
          "(rail, Stall): wait for the next one; None after the timeout, or when the agent is closed")
      .def(
          "drain_records", [](PythonAgent& self) { return self.agent().drain_records(Records::kUser); },
          "The slices that have ended since the last call")
      .def(
          "drain_measurements",
          [](PythonAgent& self) { return slice_rows(self.agent().drain_records(Records::kStriper)); },
          "The same for the striper, whatever others have drained: of each its op index, rail, start and end "
          "in ns, and bytes");
}

}  // namespace railweave
