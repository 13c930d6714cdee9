# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of failing rails; and mutants of the protocol, which some schedule must catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from protocol.recovery_hosts import Host
from protocol.recovery_network import MILLISECOND, SECOND, SECRET, Network, Path, Tamper
from protocol.recovery_pauses import SHAPES, pauses_ms
from protocol.recovery_schedules import BusyMachine, Schedule, run_seed
from protocol.seeds import total

from railweave._native import recovery
from railweave._native.secret import derive_key

SEEDS = range(300)
MUTANT_SEEDS = range(300)
AIM_MS = 80  # from a cut to the decision
AIM_EARLY_MS = 180  # of a rail that is hardly known yet
BUSY_SEEDS = range(6)


@pytest.mark.parametrize("part", range(4))
def test_schedules(part: int) -> None:
    assert total(run_seed, SEEDS[part::4])["epochs"] > len(SEEDS) // 4


def test_a_seed_repeats_itself() -> None:
    assert run_seed(3) == run_seed(3)


def test_pauses(record_property: Callable[[str, object], None]) -> None:
    for ranks, rails in SHAPES:
        pauses = pauses_ms(ranks, rails, 20)
        assert pauses[-1] < AIM_MS
        record_property(
            "summary", f"recovery: {ranks} ranks, {rails} rails: cut to decision {pauses[-1]:.1f} ms at most"
        )


def test_pauses_of_a_job_that_has_just_begun() -> None:
    """A rail of which little is known gets more patience, and yet is left within 200 ms."""
    for ranks, rails in SHAPES:
        assert pauses_ms(ranks, rails, 10, known=SECOND // 10)[-1] < AIM_EARLY_MS


@pytest.mark.parametrize("seed", BUSY_SEEDS)
def test_nobody_suspects_a_rail_for_processes_that_run_late(seed: int) -> None:
    BusyMachine(seed).run()


# --- mutants of the machine: what it says is changed on its way ---

Change = Callable[[recovery.Stamped, int], None]


def key_of(receiver: int) -> bytes:
    return derive_key(SECRET, "recovery", receiver)


def rewriting(change: Callable[[Schedule], Change]) -> Callable[[Schedule], Tamper]:
    """Change reports and orders; the change is told who gets them."""

    def of(schedule: Schedule) -> Tamper:
        apply = change(schedule)

        def tamper(_rail: int, _sender: int, receiver: int, datagram: bytes) -> bytes:
            shape = key_of(receiver), schedule.ranks, schedule.rails
            decoded = recovery.decode(datagram, *shape)
            assert isinstance(decoded, recovery.Datagram)
            stamped = decoded.body
            if not isinstance(stamped, recovery.Stamped):
                return datagram
            apply(stamped, receiver)
            decoded.body = stamped
            return recovery.encode(decoded, *shape)

        return tamper

    return of


def on_statuses(change: Callable[[recovery.Status], None]) -> Callable[[Schedule], Tamper]:
    """Change every report."""

    def apply(stamped: recovery.Stamped, _receiver: int) -> None:
        state = stamped.state
        if isinstance(state, recovery.Status):
            change(state)
            stamped.state = state

    return rewriting(lambda _schedule: apply)


def on_decisions(change: Callable[[recovery.Decision, int], None]) -> Callable[[Schedule], Tamper]:
    """Change every order; the change is told who gets it."""

    def apply(stamped: recovery.Stamped, receiver: int) -> None:
        state = stamped.state
        if isinstance(state, recovery.Decision):
            change(state, receiver)
            stamped.state = state

    return rewriting(lambda _schedule: apply)


def forget_chunk_numbers(report: recovery.Status) -> None:
    """A rank does not say how far its trees were."""
    report.channels = [without_marks(channel) for channel in report.channels]


def without_marks(channel: recovery.ChannelStatus) -> recovery.ChannelStatus:
    """Without what it used."""
    channel.next_chunks = [0] * len(channel.next_chunks)
    return channel


def see_nothing(report: recovery.Status) -> None:
    """A rank does not say what it hears."""
    channels = report.channels
    for channel in channels:
        channel.unfit = channel.broken = False
    report.channels = channels


def boundary_of_its_own(order: recovery.Decision, receiver: int) -> None:
    """The calls from which on a decision holds differ."""
    committed = order.committed
    committed.boundary -= min(committed.boundary, receiver)
    order.committed = committed


def answer_of_any_attempt(_schedule: Schedule) -> Change:
    """What a rank said to an earlier proposal counts for the present one."""
    present = [0]

    def change(stamped: recovery.Stamped, _receiver: int) -> None:
        state = stamped.state
        if isinstance(state, recovery.Decision):
            present[0] = state.prepare.attempt if state.prepare is not None else 0
        elif state.prepared is not None and present[0]:
            state.prepared = recovery.Prepared(present[0], state.prepared.position)
            stamped.state = state

    return change


def answer_for_others(schedule: Schedule) -> Change:
    """The decision does not wait for a rank that has not frozen yet."""
    present = [0]
    empty = [0] * schedule.rails

    def change(stamped: recovery.Stamped, _receiver: int) -> None:
        state = stamped.state
        if isinstance(state, recovery.Decision):
            present[0] = state.prepare.attempt if state.prepare is not None else 0
        elif present[0]:
            state.prepared = recovery.Prepared(present[0], recovery.Position(0, empty, empty))
            stamped.state = state

    return change


def any_order(_schedule: Schedule) -> Change:
    """An order that was overtaken is taken for the newest."""
    orders = [0]
    newest = [0]

    def change(stamped: recovery.Stamped, receiver: int) -> None:
        stamp = stamped.stamp
        if receiver == 1:
            orders[0] += 1
            newest[0] = max(newest[0], stamp.serial)
            stamp.serial = orders[0]
        elif isinstance(stamped.state, recovery.Status):
            stamp.seen = min(stamp.seen, newest[0])
        stamped.stamp = stamp

    return change


def farewells_stay_out(schedule: Schedule) -> Tamper:
    """Who notices a death keeps it to itself."""

    def tamper(_rail: int, _sender: int, receiver: int, datagram: bytes) -> bytes:
        decoded = recovery.decode(datagram, key_of(receiver), schedule.ranks, schedule.rails)
        assert isinstance(decoded, recovery.Datagram)
        return b"" if isinstance(decoded.body, recovery.Goodbye) else datagram

    return tamper


# --- mutants of the agent and its options ---


class SubmitsWhileFrozen(Host):
    """Calls go on between a rank's answer and the decision."""

    def submit(self) -> None:
        freeze, self.prepare = self.prepare, None
        super().submit()
        self.prepare = freeze


class SaysOnce(Network):
    """A state is not repeated until it has been seen."""

    def __init__(self, paths: list[Path], seed: int, tamper: Tamper | None = None) -> None:
        super().__init__(paths, seed, tamper)
        self.said: set[tuple[int, int, int, int]] = set()

    def send(self, sender: int, rail: int, receiver: int, datagram: bytes) -> None:
        decoded = recovery.decode(datagram, key_of(receiver), len(self.processes), len(self.paths))
        assert isinstance(decoded, recovery.Datagram)
        if isinstance(decoded.body, recovery.Stamped):
            key = (rail, sender, receiver, decoded.body.stamp.serial)
            if key in self.said:
                return
            self.said.add(key)
        super().send(sender, rail, receiver, datagram)


class TriesAtOnce(Schedule):
    """A rail that went down is tried as soon as it is heard."""

    def options(self, rank: int) -> recovery.Options:
        options = super().options(rank)
        options.hold = MILLISECOND
        return options


class TooPatient(Schedule):
    """A dead rail is waited for."""

    def options(self, rank: int) -> recovery.Options:
        options = super().options(rank)
        options.least_silence = options.most_silence = SECOND
        return options


class Impatient(Schedule):
    """One tick that is late is a dead rail."""

    def options(self, rank: int) -> recovery.Options:
        options = super().options(rank)
        options.least_silence = options.most_silence = options.heartbeat
        return options


class LatenessMeansNothing(BusyMachine):
    """Patience does not grow with what the processes were late."""

    def options(self, rank: int) -> recovery.Options:
        options = super().options(rank)
        options.most_leeway = 0
        return options


class BusyAndImpatient(BusyMachine):
    """Patience has one length, whatever was seen."""

    def options(self, rank: int) -> recovery.Options:
        options = super().options(rank)
        options.most_silence, options.most_leeway = options.least_silence, 0
        return options


@dataclass(frozen=True)
class Mutant:
    """What a schedule is made with."""

    schedule: type[Schedule] = Schedule
    tamper: Callable[[Schedule], Tamper] | None = None
    host: type[Host] = Host
    network: type[Network] = Network


MUTANTS = {
    "chunk numbers are forgotten": Mutant(tamper=on_statuses(forget_chunk_numbers)),
    "nobody says what it hears": Mutant(tamper=on_statuses(see_nothing)),
    "each rank has a boundary of its own": Mutant(tamper=on_decisions(boundary_of_its_own)),
    "an answer to any attempt counts": Mutant(tamper=rewriting(answer_of_any_attempt)),
    "a decision without all answers": Mutant(tamper=rewriting(answer_for_others)),
    "orders out of order": Mutant(tamper=rewriting(any_order)),
    "farewells stay out": Mutant(tamper=farewells_stay_out),
    "states are not repeated": Mutant(network=SaysOnce),
    "calls go on while frozen": Mutant(host=SubmitsWhileFrozen),
    "no hold": Mutant(TriesAtOnce),
    "patience without end": Mutant(TooPatient),
    "no patience": Mutant(Impatient),
    "lateness means nothing": Mutant(LatenessMeansNothing),
    "busy and impatient": Mutant(BusyAndImpatient),
}


def caught(mutant: Mutant, seed: int) -> bool:
    """Whether this seed's schedule shows the mutant."""
    try:
        mutant.schedule(seed, mutant.tamper, mutant.network, mutant.host).run()
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name: str) -> None:
    assert any(caught(MUTANTS[name], seed) for seed in MUTANT_SEEDS)


def test_the_protocol_itself_is_not_caught() -> None:
    assert not any(caught(Mutant(), seed) for seed in range(40))
