// SPDX-License-Identifier: Apache-2.0
#include "bindings/agent_values.hpp"

#include <memory>

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave {

SliceRows slice_rows(const std::vector<SliceRecord>& records) {
  auto flat = std::make_unique<std::vector<std::int64_t>>();
  flat->reserve(5 * records.size());
  for (const SliceRecord& each : records)
    flat->insert(flat->end(), {each.op_index, static_cast<std::int64_t>(each.rail), each.start, each.end,
                               static_cast<std::int64_t>(each.bytes)});
  std::int64_t* data = flat->data();
  const nb::capsule owner(flat.release(),
                          [](void* of) noexcept { delete static_cast<std::vector<std::int64_t>*>(of); });
  return SliceRows(data, {records.size(), 5}, owner);
}

void bind_agent_values(nb::module_& sub) {
  RAILWEAVE_ENUM(sub, FailureKind, kPeerLost, kMismatch, kRailDown, kInternal)
      .value("SILENT", FailureKind::kSilent, "of a rail: its agent finds out which it is");
  RAILWEAVE_ENUM(sub, RdmaPlace, kAny, kDevice, kUserSpace);
  nb::class_<Stall>(
      sub, "Stall",
      "Contributions to a tree are silent; whether probes are answered, and by whom. Or `spoilt`: "
      "its switch has a wrong sum")
      .def(RAILWEAVE_RO(Stall, group, first_switch_ok, root_ok, spoilt));
  nb::class_<GroupStats>(sub, "GroupStats", "One aggregation tree's counts since it was formed")
      .def(RAILWEAVE_RO(GroupStats, group, slots, in_flight, window))
      .def_ro("rtt_ns", &GroupStats::rtt)
      .def(RAILWEAVE_RO(GroupStats, contributions, results, retransmissions, early_retransmissions, timeouts,
                        stale, duplicates, mismatches, probes_sent, probes_answered, nonfinite_chunks, moves,
                        error_bound, multicasts, multicast_bytes, fetched_bytes, answered_bytes))
      .def_ro("refused", &GroupStats::refused_packets);
  nb::class_<Failure>(sub, "Failure", "What has ended a communicator; `rank` is the peer concerned, or -1")
      .def(nb::init<FailureKind, int, std::string, std::string>(), "kind"_a, "rank"_a, "message"_a,
           "rail"_a = "")
      .def(RAILWEAVE_RO(Failure, kind, rank, message))
      .def_ro("rail", &Failure::rail, "where it happened; empty if not on a rail")
      .def_ro("by_peer", &Failure::by_peer, "of SILENT: the other end has ended the connection itself");
  nb::class_<SentBytes>(sub, "SentBytes", "Why bytes were sent; the rest is headers and acknowledgements")
      .def(RAILWEAVE_RO(SentBytes, payload, resends, recovery, heartbeats, control));
  nb::class_<RailStats>(sub, "RailStats",
                        "Counts since the rail was opened; `busy_ns` is time with a slice in progress")
      .def(RAILWEAVE_RO(RailStats, slices, payload_bytes, bytes_sent))
      .def_ro("sent", &RailStats::sent, "`bytes_sent` by class")
      .def(RAILWEAVE_RO(RailStats, bytes_received, packets_sent, packets_received, retransmissions,
                        duplicates, malformed, send_drops, segmentation_refused, multicast_bytes,
                        fetched_bytes, rings, ring_messages))
      .def_ro("busy_ns", &RailStats::busy);
  nb::class_<SliceRecord>(sub, "SliceRecord",
                          "One slice as it went; times in nanoseconds of time.monotonic_ns()")
      .def(RAILWEAVE_RO(SliceRecord, op_index, rail))
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
          "state",
          [](const RailState& self) {
            static constexpr const char* kNames[] = {"up", "down", "recovering"};
            return kNames[static_cast<std::size_t>(self.state)];
          },
          "up, down, recovering")
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
             std::uint16_t root, Called called) {
            new (self) CallDescription{.op_index = 0,
                                       .collective = collective,
                                       .dtype = dtype,
                                       .op = op,
                                       .root = root,
                                       .count = count,
                                       .called = called};
          },
          "dtype"_a, "op"_a, "count"_a, "collective"_a = Collective::kAllReduce, "root"_a = 0,
          "called"_a = Called::kAsCarried)
      .def_ro("count", &CallDescription::count, "elements of the tensor, or of one rank's shard");
}

}  // namespace railweave
