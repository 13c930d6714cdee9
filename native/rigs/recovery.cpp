// SPDX-License-Identifier: Apache-2.0
// railweave._rigs.recovery: the recovery machine, its parts and its datagrams, for tests.
#include "recovery/recovery.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <vector>

#include "bindings/values.hpp"
#include "recovery/channel.hpp"
#include "recovery/coordinator.hpp"
#include "recovery/datagram.hpp"
#include "recovery/member.hpp"
#include "recovery/probation.hpp"
#include "recovery/pulse.hpp"
#include "rigs/rig.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave::recovery {
namespace {

void bind_enums(nb::module_& m) {
  RAILWEAVE_ENUM(m, State, kUp, kDown, kRecovering);
  RAILWEAVE_ENUM(m, ChannelState, kUp, kHalting, kHalted, kRestarting, kPassed, kFailed);
  RAILWEAVE_ENUM(m, ChannelInput, kExclude, kHalt, kHalted, kRestart, kPassed, kFailed, kAdmit);
  RAILWEAVE_ENUM(m, Round, kNone, kPreparing, kPrepared);
  RAILWEAVE_ENUM(m, RoundInput, kPrepare, kPrepared, kCommit);
  RAILWEAVE_ENUM(m, Phase, kUp, kDown, kTrying, kPassed);
  RAILWEAVE_ENUM(m, PhaseInput, kOut, kTry, kPass, kFail, kInterrupt, kAdmit);
  m.def("next_channel_state", &next_channel_state, "state"_a, "input"_a, "None: not allowed in that state.");
  m.def("next_round_state", &next_round_state, "state"_a, "input"_a, "None: not allowed in that state.");
  m.def("next_phase", &next_phase, "phase"_a, "input"_a, "None: not allowed in that phase.");
}

void bind_options(nb::module_& m) {
  nb::class_<Options>(m, "Options", "Times in nanoseconds.")
      .def(
          "__init__",
          [](Options* self, int rank, int world_size, std::size_t rails,
             const std::optional<nb::bytes>& secret, Duration peer_timeout) {
            new (self) Options{.rank = rank,
                               .world_size = world_size,
                               .rails = rails,
                               .secret = secret ? secret_of(*secret) : Secret{},
                               .peer_timeout = peer_timeout};
          },
          nb::kw_only(), "rank"_a, "world_size"_a, "rails"_a, "secret"_a = nb::none(),
          "peer_timeout"_a = 5 * kSecond)
      .def(RAILWEAVE_RW(Options, heartbeat, least_silence, most_silence, most_leeway, memory, settling, hold,
                        most_hold, health, trial, peer_timeout));
}

void bind_events(nb::module_& m) {
  nb::class_<Position>(m, "Position")
      .def(nb::init<std::uint32_t, std::vector<std::uint32_t>, std::vector<std::uint32_t>>(), "submitted"_a,
           "main"_a, "repair"_a)
      .def(RAILWEAVE_RW(Position, submitted, main, repair));
  nb::class_<Reach>(m, "Reach")
      .def(nb::init<>())
      .def(RAILWEAVE_RW(Reach, done, rank, least))
      .def(nb::self == nb::self);
  nb::class_<Prepare>(m, "Prepare").def(RAILWEAVE_RO(Prepare, epoch, attempt, alive));
  nb::class_<Commit>(m, "Commit")
      .def(nb::init<>())
      .def(RAILWEAVE_RW(Commit, epoch, alive, boundary, main, repair))
      .def(nb::self == nb::self);
  nb::class_<Restart>(m, "Restart").def(RAILWEAVE_RO(Restart, rail, incarnation, bases));
  nb::class_<Halt>(m, "Halt").def(RAILWEAVE_RO(Halt, rail, incarnation));
  nb::class_<PeerLost>(m, "PeerLost").def(RAILWEAVE_RO(PeerLost, rank, reason));
  nb::class_<AllCompleted>(m, "AllCompleted").def_ro("op", &AllCompleted::op);
  nb::class_<AllSubmitted>(m, "AllSubmitted").def_ro("op", &AllSubmitted::op);
  nb::class_<RailChanged>(m, "RailChanged").def(RAILWEAVE_RO(RailChanged, rail, state, reason));
}

void bind_states(nb::module_& m) {
  nb::class_<ChannelStatus>(m, "ChannelStatus")
      .def(nb::init<>())
      .def(RAILWEAVE_RW(ChannelStatus, state, incarnation, unfit, broken, reason, next_chunks));
  nb::class_<Prepared>(m, "Prepared")
      .def(nb::init<std::uint32_t, Position>(), "attempt"_a, "position"_a)
      .def(RAILWEAVE_RW(Prepared, attempt, position));
  nb::class_<Status>(m, "Status")
      .def(nb::init<>())
      .def(RAILWEAVE_RW(Status, epoch, channels))
      .def_rw("prepared", &Status::prepared, nb::arg().none());
  nb::class_<ChannelDecision>(m, "ChannelDecision")
      .def(nb::init<>())
      .def(RAILWEAVE_RW(ChannelDecision, incarnation, active, reason, bases));
  nb::class_<PrepareRequest>(m, "PrepareRequest")
      .def(nb::init<std::uint32_t, RailSet>(), "attempt"_a, "alive"_a)
      .def(RAILWEAVE_RW(PrepareRequest, attempt, alive));
  nb::class_<Decision>(m, "Decision")
      .def(nb::init<>())
      .def(RAILWEAVE_RW(Decision, committed, channels))
      .def_rw("prepare", &Decision::prepare, nb::arg().none());
}

void bind_datagrams(nb::module_& m) {
  nb::class_<Standing>(m, "Standing")
      .def(nb::init<std::uint32_t, std::uint32_t, std::uint32_t>(), "completed"_a, "submitted"_a, "tick"_a)
      .def(RAILWEAVE_RW(Standing, completed, submitted, tick));
  nb::class_<Heartbeat>(m, "Heartbeat")
      .def(nb::init<>())
      .def(RAILWEAVE_RW(Heartbeat, tick, first, standings));
  nb::class_<Stamp>(m, "Stamp").def(nb::init<>()).def(RAILWEAVE_RW(Stamp, serial, seen, answer));
  nb::class_<Stamped>(m, "Stamped").def(nb::init<>()).def(RAILWEAVE_RW(Stamped, stamp, state));
  nb::class_<Goodbye>(m, "Goodbye").def(nb::init<>()).def(RAILWEAVE_RW(Goodbye, rank, dead, reason));
  nb::class_<Inquiry>(m, "Inquiry").def(nb::init<>()).def(RAILWEAVE_RW(Inquiry, answer));
  nb::class_<Datagram>(m, "Datagram")
      .def(nb::init<>())
      .def(RAILWEAVE_RW(Datagram, sequence, sender, rail, body))
      .def(nb::self == nb::self);
  RAILWEAVE_ENUM(m, Refusal, kStranger, kMalformed, kReplayed);
  m.attr("MAX_DATAGRAM") = kMaxDatagram;
  m.attr("MAX_REASON") = kMaxReason;
  m.def(
      "encode",
      [](const Datagram& datagram, const nb::bytes& key, int world_size, std::size_t rails) {
        std::vector<std::byte> bytes;
        encode(datagram, {.world_size = world_size, .rails = rails}, key_from(key), bytes);
        return to_python(bytes);
      },
      "datagram"_a, "key"_a, "world_size"_a, "rails"_a, "Lists must be as long as world size and rails say.");
  m.def(
      "decode",
      [](const nb::bytes& bytes, const nb::bytes& key, int world_size, std::size_t rails) {
        return decode(view(bytes), {.world_size = world_size, .rails = rails}, key_from(key));
      },
      "bytes"_a, "key"_a, "world_size"_a, "rails"_a, "The datagram, or why it is refused.");
}

void bind_parts(nb::module_& m) {
  nb::class_<Pulse>(m, "Pulse", "The ring predecessor's ticks, rail by rail.")
      .def(nb::init<const Options&, Time>(), "options"_a, "now"_a)
      .def("hear", &Pulse::hear, "rail"_a, "tick"_a, "now"_a)
      .def("slept", &Pulse::slept, "duration"_a, "now"_a)
      .def("judge", &Pulse::judge, "now"_a)
      .def_prop_ro("silent", &Pulse::silent)
      .def("leeway", &Pulse::leeway, "now"_a)
      .def("patience", &Pulse::patience, "rail"_a, "now"_a)
      .def("deadline", [](const Pulse& pulse, Time now) { return or_none(pulse.deadline(now)); }, "now"_a);
  nb::class_<Probation>(m, "Probation", "Rank 0's view of one rail.")
      .def(nb::init<const Options&, Time>(), "options"_a, "now"_a)
      .def("apply", &Probation::apply, "input"_a, "now"_a)
      .def("judge", &Probation::judge, "fit"_a, "now"_a)
      .def_prop_ro("phase", &Probation::phase)
      .def("deadline", [](const Probation& rail) { return or_none(rail.deadline()); });
  nb::class_<Coordinator>(m, "Coordinator", "Rank 0's part in the agreement.")
      .def(nb::init<const Options&, Time>(), "options"_a, "now"_a)
      .def("take", &Coordinator::take, "rank"_a, "status"_a, "now"_a)
      .def("expire", &Coordinator::expire, "now"_a)
      .def("deadline", [](const Coordinator& coordinator) { return or_none(coordinator.deadline()); })
      .def("decision", [](const Coordinator& coordinator) { return coordinator.decision(); })
      .def_prop_ro("settled", &Coordinator::settled);
  nb::class_<Member>(m, "Member", "A rank's part in the agreement.")
      .def(nb::init<const Options&>(), "options"_a)
      .def("set_obstacle", &Member::set_obstacle, "rail"_a, "reason"_a)
      .def("suspect", &Member::suspect, "rail"_a, "reason"_a)
      .def("prepared", &Member::prepared, "prepare"_a, "position"_a)
      .def("halted", &Member::halted, "rail"_a, "next_chunks"_a)
      .def("restarted", &Member::restarted, "rail"_a, "incarnation"_a, "passed"_a)
      .def("follow", nb::overload_cast<const Decision&>(&Member::follow), "decision"_a)
      .def("status", &Member::status)
      .def("poll", &Member::poll)
      .def_prop_ro("round", &Member::round);
}

using Sent = std::tuple<std::size_t, int, nb::bytes>;

std::optional<Sent> transmit(Recovery& recovery, Time now) {
  const auto outgoing = recovery.transmit(now);
  if (!outgoing) return std::nullopt;
  return Sent(outgoing->rail, outgoing->rank, to_python(outgoing->bytes));
}

nb::dict counts(const Recovery& recovery) {
  return RAILWEAVE_DICT(recovery.stats(), sent, received, strangers, malformed, replayed, suspicions, rounds,
                        violations);
}

void bind_machine(nb::module_& m) {
  nb::class_<Recovery>(m, "Recovery", "The recovery machine of one rank.")
      .def(nb::init<const Options&, Time>(), "options"_a, "now"_a)
      .def(
          "receive",
          [](Recovery& self, std::size_t rail, int rank, const nb::bytes& datagram, Time now) {
            return self.receive(rail, rank, view(datagram), now);
          },
          "rail"_a, "rank"_a, "datagram"_a, "now"_a, "Why it is refused; None: it is not.")
      .def(
          "unreachable",
          [](Recovery& self, std::size_t rail, int rank, const nb::bytes& quoted, Time now) {
            return self.unreachable(rail, rank, view(quoted), now);
          },
          "rail"_a, "rank"_a, "quoted"_a, "now"_a, "Why it is refused; None: it is not.")
      .def("suspect", &Recovery::suspect, "rail"_a, "reason"_a, "now"_a)
      .def("set_obstacle", &Recovery::set_obstacle, "rail"_a, "reason"_a, "now"_a)
      .def("completed", &Recovery::completed, "op"_a)
      .def("submitted", &Recovery::submitted, "op"_a)
      .def("prepared", &Recovery::prepared, "prepare"_a, "position"_a, "now"_a)
      .def("halted", &Recovery::halted, "rail"_a, "next_chunks"_a, "now"_a)
      .def("restarted", &Recovery::restarted, "rail"_a, "incarnation"_a, "passed"_a, "now"_a)
      .def("leave", &Recovery::leave, "now"_a)
      .def("deadline", [](const Recovery& self) { return or_none(self.deadline()); })
      .def("expire", &Recovery::expire, "now"_a)
      .def("transmit", &transmit, "now"_a, "The next datagram to send as (rail, rank, bytes), or None.")
      .def("poll", &Recovery::poll, "The next event, or None.")
      .def_prop_ro("epoch", &Recovery::epoch)
      .def_prop_ro("alive", &Recovery::alive)
      .def_prop_ro("ran", &Recovery::ran, "How long all ranks have run, as far as is known.")
      .def("stats", &counts);
}

}  // namespace

void bind_recovery(nb::module_& m) {
  nb::module_ sub = rig_submodule(m, "recovery", "Which rails live, agreed among all ranks.");
  bind_enums(sub);
  bind_options(sub);
  bind_events(sub);
  bind_states(sub);
  bind_datagrams(sub);
  bind_parts(sub);
  bind_machine(sub);
}

}  // namespace railweave::recovery
