// SPDX-License-Identifier: Apache-2.0
#include "bindings/agent_values.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "agent/agent.hpp"

namespace nb = nanobind;

namespace railweave {
namespace {

const char* name_of(recovery::State state) {
  switch (state) {
    case recovery::State::kUp:
      return "up";
    case recovery::State::kDown:
      return "down";
    case recovery::State::kRecovering:
      return "recovering";
  }
  __builtin_unreachable();
}

}  // namespace

void bind_agent_values(nb::module_& sub) {
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
  nb::class_<SentBytes>(sub, "SentBytes", "Why bytes were sent; the rest is headers and acknowledgements")
      .def_ro("payload", &SentBytes::payload)
      .def_ro("resends", &SentBytes::resends)
      .def_ro("recovery", &SentBytes::recovery)
      .def_ro("heartbeats", &SentBytes::heartbeats)
      .def_ro("control", &SentBytes::control);
  nb::class_<RailStats>(sub, "RailStats",
                        "Counts since the rail was opened; `busy_ns` is time with a slice in progress")
      .def_ro("slices", &RailStats::slices)
      .def_ro("payload_bytes", &RailStats::payload_bytes)
      .def_ro("bytes_sent", &RailStats::bytes_sent)
      .def_ro("sent", &RailStats::sent, "`bytes_sent` by class")
      .def_ro("bytes_received", &RailStats::bytes_received)
      .def_ro("packets_sent", &RailStats::packets_sent)
      .def_ro("packets_received", &RailStats::packets_received)
      .def_ro("retransmissions", &RailStats::retransmissions)
      .def_ro("duplicates", &RailStats::duplicates)
      .def_ro("malformed", &RailStats::malformed)
      .def_ro("send_drops", &RailStats::send_drops)
      .def_ro("segmentation_refused", &RailStats::segmentation_refused)
      .def_ro("busy_ns", &RailStats::busy);
  nb::class_<SliceRecord>(sub, "SliceRecord",
                          "One slice as it went; times in nanoseconds of time.monotonic_ns()")
      .def_ro("op_index", &SliceRecord::op_index)
      .def_ro("rail", &SliceRecord::rail)
      .def_ro("start_ns", &SliceRecord::start)
      .def_ro("end_ns", &SliceRecord::end)
      .def_ro("bytes", &SliceRecord::bytes, "of the whole tensor")
      .def_ro("repair", &SliceRecord::repair, "over TCP on the rail's interface, after a rail has died");
  nb::class_<Change>(sub, "Change", "From call `from_op` on, the rails that are `alive` carry calls")
      .def_ro("from_op", &Change::from_op)
      .def_ro("alive", &Change::alive, "by rail")
      .def_ro("reasons", &Change::reasons, "by rail; empty for those that are alive");
  nb::class_<RailState>(sub, "RailState", "What the ranks have agreed about a rail")
      .def_prop_ro(
          "state", [](const RailState& self) { return name_of(self.state); }, "up, down, recovering")
      .def_ro("reason", &RailState::reason, "of the last change")
      .def_ro("since_ns", &RailState::since, "of time.monotonic_ns()")
      .def_ro("epoch", &RailState::epoch, "of the last decision")
      .def_ro("incarnation", &RailState::incarnation, "restarts, failed trials included")
      .def_ro("failures", &RailState::failures, "how often the ranks have agreed to exclude it")
      .def_ro("last_failure", &RailState::last_failure, "why they did so the last time")
      .def_ro("down_ns", &RailState::down, "how long they have done so, all in all");
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
          nb::arg("root") = 0)
      .def_ro("count", &CallDescription::count, "elements of the tensor, or of one rank's shard");
}

}  // namespace railweave
