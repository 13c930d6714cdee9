// SPDX-License-Identifier: Apache-2.0
// railweave._native.recovery: the recovery machine, its parts and its datagrams, for tests.
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
#include <utility>
#include <variant>
#include <vector>

#include "recovery/channel.hpp"
#include "recovery/coordinator.hpp"
#include "recovery/datagram.hpp"
#include "recovery/member.hpp"
#include "recovery/probation.hpp"
#include "recovery/pulse.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace railweave::recovery {
namespace {

Bytes view(const nb::bytes& bytes) { return {static_cast<const std::byte*>(bytes.data()), bytes.size()}; }

std::optional<Time> or_none(Time at) { return at == kNever ? std::nullopt : std::optional(at); }

void bind_enums(nb::module_& m) {
  nb::enum_<State>(m, "State")
      .value("UP", State::kUp)
      .value("DOWN", State::kDown)
      .value("RECOVERING", State::kRecovering);
  nb::enum_<ChannelState>(m, "ChannelState")
      .value("UP", ChannelState::kUp)
      .value("HALTING", ChannelState::kHalting)
      .value("HALTED", ChannelState::kHalted)
      .value("RESTARTING", ChannelState::kRestarting)
      .value("PASSED", ChannelState::kPassed)
      .value("FAILED", ChannelState::kFailed);
  nb::enum_<ChannelInput>(m, "ChannelInput")
      .value("EXCLUDE", ChannelInput::kExclude)
      .value("HALT", ChannelInput::kHalt)
      .value("HALTED", ChannelInput::kHalted)
      .value("RESTART", ChannelInput::kRestart)
      .value("PASSED", ChannelInput::kPassed)
      .value("FAILED", ChannelInput::kFailed)
      .value("ADMIT", ChannelInput::kAdmit);
  nb::enum_<Round>(m, "Round")
      .value("NONE", Round::kNone)
      .value("PREPARING", Round::kPreparing)
      .value("PREPARED", Round::kPrepared);
  nb::enum_<RoundInput>(m, "RoundInput")
      .value("PREPARE", RoundInput::kPrepare)
      .value("PREPARED", RoundInput::kPrepared)
      .value("COMMIT", RoundInput::kCommit);
  nb::enum_<Phase>(m, "Phase")
      .value("UP", Phase::kUp)
      .value("DOWN", Phase::kDown)
      .value("TRYING", Phase::kTrying)
      .value("PASSED", Phase::kPassed);
  nb::enum_<PhaseInput>(m, "PhaseInput")
      .value("OUT", PhaseInput::kOut)
      .value("TRY", PhaseInput::kTry)
      .value("PASS", PhaseInput::kPass)
      .value("FAIL", PhaseInput::kFail)
      .value("INTERRUPT", PhaseInput::kInterrupt)
      .value("ADMIT", PhaseInput::kAdmit);
  m.def("next_channel_state", &next_channel_state, "state"_a, "input"_a, "None: not allowed in that state.");
  m.def("next_round_state", &next_round_state, "state"_a, "input"_a, "None: not allowed in that state.");
  m.def("next_phase", &next_phase, "phase"_a, "input"_a, "None: not allowed in that phase.");
}

void bind_options(nb::module_& m) {
  nb::class_<Options>(m, "Options", "Times in nanoseconds.")
      .def(
          "__init__",
          [](Options* self, int rank, int world_size, std::size_t rails, std::uint64_t token,
             Duration peer_timeout) {
            new (self) Options{.rank = rank,
                               .world_size = world_size,
                               .rails = rails,
                               .token = token,
                               .peer_timeout = peer_timeout};
          },
          nb::kw_only(), "rank"_a, "world_size"_a, "rails"_a, "token"_a = 0, "peer_timeout"_a = 5 * kSecond)
      .def_rw("heartbeat", &Options::heartbeat)
      .def_rw("least_silence", &Options::least_silence)
      .def_rw("most_silence", &Options::most_silence)
      .def_rw("most_leeway", &Options::most_leeway)
      .def_rw("memory", &Options::memory)
      .def_rw("settling", &Options::settling)
      .def_rw("hold", &Options::hold)
      .def_rw("most_hold", &Options::most_hold)
      .def_rw("health", &Options::health)
      .def_rw("trial", &Options::trial)
      .def_rw("peer_timeout", &Options::peer_timeout);
}

void bind_events(nb::module_& m) {
  nb::class_<Position>(m, "Position")
      .def(
          "__init__",
          [](Position* self, std::uint32_t submitted, std::vector<std::uint32_t> main,
             std::vector<std::uint32_t> repair) {
            new (self) Position{.submitted = submitted, .main = std::move(main), .repair = std::move(repair)};
          },
          "submitted"_a, "main"_a, "repair"_a)
      .def_rw("submitted", &Position::submitted)
      .def_rw("main", &Position::main)
      .def_rw("repair", &Position::repair);
  nb::class_<Reach>(m, "Reach")
      .def(nb::init<>())
      .def_rw("done", &Reach::done)
      .def_rw("rank", &Reach::rank)
      .def_rw("least", &Reach::least)
      .def(nb::self == nb::self);
  nb::class_<Prepare>(m, "Prepare")
      .def_ro("epoch", &Prepare::epoch)
      .def_ro("attempt", &Prepare::attempt)
      .def_ro("alive", &Prepare::alive);
  nb::class_<Commit>(m, "Commit")
      .def(nb::init<>())
      .def_rw("epoch", &Commit::epoch)
      .def_rw("alive", &Commit::alive)
      .def_rw("boundary", &Commit::boundary)
      .def_rw("main", &Commit::main)
      .def_rw("repair", &Commit::repair)
      .def(nb::self == nb::self);
  nb::class_<Restart>(m, "Restart")
      .def_ro("rail", &Restart::rail)
      .def_ro("incarnation", &Restart::incarnation)
      .def_ro("bases", &Restart::bases);
  nb::class_<Halt>(m, "Halt").def_ro("rail", &Halt::rail).def_ro("incarnation", &Halt::incarnation);
  nb::class_<PeerLost>(m, "PeerLost").def_ro("rank", &PeerLost::rank).def_ro("reason", &PeerLost::reason);
  nb::class_<AllCompleted>(m, "AllCompleted").def_ro("op", &AllCompleted::op);
  nb::class_<AllSubmitted>(m, "AllSubmitted").def_ro("op", &AllSubmitted::op);
  nb::class_<RailChanged>(m, "RailChanged")
      .def_ro("rail", &RailChanged::rail)
      .def_ro("state", &RailChanged::state)
      .def_ro("reason", &RailChanged::reason);
}

void bind_states(nb::module_& m) {
  nb::class_<ChannelStatus>(m, "ChannelStatus")
      .def(nb::init<>())
      .def_rw("state", &ChannelStatus::state)
      .def_rw("incarnation", &ChannelStatus::incarnation)
      .def_rw("unfit", &ChannelStatus::unfit)
      .def_rw("broken", &ChannelStatus::broken)
      .def_rw("reason", &ChannelStatus::reason)
      .def_rw("next_chunks", &ChannelStatus::next_chunks);
  nb::class_<Prepared>(m, "Prepared")
      .def(
          "__init__",
          [](Prepared* self, std::uint32_t attempt, Position position) {
            new (self) Prepared{.attempt = attempt, .position = std::move(position)};
          },
          "attempt"_a, "position"_a)
      .def_rw("attempt", &Prepared::attempt)
      .def_rw("position", &Prepared::position);
  nb::class_<Status>(m, "Status")
      .def(nb::init<>())
      .def_rw("epoch", &Status::epoch)
      .def_rw("channels", &Status::channels)
      .def_rw("prepared", &Status::prepared, nb::arg().none());
  nb::class_<ChannelDecision>(m, "ChannelDecision")
      .def(nb::init<>())
      .def_rw("incarnation", &ChannelDecision::incarnation)
      .def_rw("active", &ChannelDecision::active)
      .def_rw("reason", &ChannelDecision::reason)
      .def_rw("bases", &ChannelDecision::bases);
  nb::class_<PrepareRequest>(m, "PrepareRequest")
      .def(
          "__init__",
          [](PrepareRequest* self, std::uint32_t attempt, RailSet alive) {
            new (self) PrepareRequest{.attempt = attempt, .alive = alive};
          },
          "attempt"_a, "alive"_a)
      .def_rw("attempt", &PrepareRequest::attempt)
      .def_rw("alive", &PrepareRequest::alive);
  nb::class_<Decision>(m, "Decision")
      .def(nb::init<>())
      .def_rw("committed", &Decision::committed)
      .def_rw("channels", &Decision::channels)
      .def_rw("prepare", &Decision::prepare, nb::arg().none());
}

void bind_datagrams(nb::module_& m) {
  nb::class_<Standing>(m, "Standing")
      .def(
          "__init__",
          [](Standing* self, std::uint32_t completed, std::uint32_t submitted, std::uint32_t tick) {
            new (self) Standing{.completed = completed, .submitted = submitted, .tick = tick};
          },
          "completed"_a, "submitted"_a, "tick"_a)
      .def_rw("completed", &Standing::completed)
      .def_rw("submitted", &Standing::submitted)
      .def_rw("tick", &Standing::tick);
  nb::class_<Heartbeat>(m, "Heartbeat")
      .def(nb::init<>())
      .def_rw("tick", &Heartbeat::tick)
      .def_rw("first", &Heartbeat::first)
      .def_rw("standings", &Heartbeat::standings);
  nb::class_<Stamp>(m, "Stamp")
      .def(nb::init<>())
      .def_rw("serial", &Stamp::serial)
      .def_rw("seen", &Stamp::seen)
      .def_rw("answer", &Stamp::answer);
  nb::class_<Stamped>(m, "Stamped")
      .def(nb::init<>())
      .def_rw("stamp", &Stamped::stamp)
      .def_rw("state", &Stamped::state);
  nb::class_<Goodbye>(m, "Goodbye")
      .def(nb::init<>())
      .def_rw("rank", &Goodbye::rank)
      .def_rw("dead", &Goodbye::dead)
      .def_rw("reason", &Goodbye::reason);
  nb::class_<Datagram>(m, "Datagram")
      .def(nb::init<>())
      .def_rw("sender", &Datagram::sender)
      .def_rw("rail", &Datagram::rail)
      .def_rw("body", &Datagram::body)
      .def(nb::self == nb::self);
  nb::enum_<Refusal>(m, "Refusal")
      .value("STRANGER", Refusal::kStranger)
      .value("MALFORMED", Refusal::kMalformed);
  m.attr("MAX_DATAGRAM") = kMaxDatagram;
  m.attr("MAX_REASON") = kMaxReason;
  m.attr("WINDOW") = kWindow;
  m.def(
      "encode",
      [](const Datagram& datagram, std::uint64_t token, int world_size, std::size_t rails) {
        std::vector<std::byte> bytes;
        encode(datagram, {.token = token, .world_size = world_size, .rails = rails}, bytes);
        return nb::bytes(bytes.data(), bytes.size());
      },
      "datagram"_a, "token"_a, "world_size"_a, "rails"_a,
      "Lists must be as long as world size and rails say.");
  m.def(
      "decode",
      [](const nb::bytes& bytes, std::uint64_t token, int world_size, std::size_t rails) {
        return decode(view(bytes), {.token = token, .world_size = world_size, .rails = rails});
      },
      "bytes"_a, "token"_a, "world_size"_a, "rails"_a, "The datagram, or why it is refused.");
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
      .def("set_silence", &Member::set_silence, "rail"_a, "reason"_a)
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
  return Sent(outgoing->rail, outgoing->rank, nb::bytes(outgoing->bytes.data(), outgoing->bytes.size()));
}

nb::dict counts(const Recovery& recovery) {
  const Stats& stats = recovery.stats();
  nb::dict all;
  all["sent"] = stats.sent;
  all["received"] = stats.received;
  all["strangers"] = stats.strangers;
  all["malformed"] = stats.malformed;
  all["suspicions"] = stats.suspicions;
  all["rounds"] = stats.rounds;
  all["violations"] = stats.violations;
  return all;
}

void bind_machine(nb::module_& m) {
  nb::class_<Recovery>(m, "Recovery", "The recovery machine of one rank.")
      .def(nb::init<const Options&, Time>(), "options"_a, "now"_a)
      .def(
          "receive",
          [](Recovery& self, std::size_t rail, int rank, const nb::bytes& datagram, Time now) {
            self.receive(rail, rank, view(datagram), now);
          },
          "rail"_a, "rank"_a, "datagram"_a, "now"_a)
      .def("unreachable", &Recovery::unreachable, "rail"_a, "rank"_a, "now"_a)
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
  nb::module_ sub = m.def_submodule("recovery", "Which rails live, agreed among all ranks.");
  bind_enums(sub);
  bind_options(sub);
  bind_events(sub);
  bind_states(sub);
  bind_datagrams(sub);
  bind_parts(sub);
  bind_machine(sub);
}

}  // namespace railweave::recovery
