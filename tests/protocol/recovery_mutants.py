# SPDX-License-Identifier: Apache-2.0
"""Mutants of the agreement on rails, which some schedule must catch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from protocol.recovery_network import SECRET, Host, Network
from protocol.recovery_schedules import BusyMachine, Schedule
from protocol.seeds import Make
from protocol.virtual_time import MILLISECOND, SECOND, Link, Tamper

from railweave._rigs import recovery
from railweave._rigs.secret import derive_key

# --- mutants of the machine: its messages are changed on the way ---

Change = Callable[[recovery.Stamped, int], None]


def key_of(receiver: int) -> bytes:
    return derive_key(SECRET, "recovery", receiver)


def rewriting(change: Callable[[Schedule], Change]) -> Callable[[Schedule], Tamper]:
    """Change statuses and decisions. `change` gets the receiver of each."""

    def of(schedule: Schedule) -> Tamper:
        apply = change(schedule)

        def tamper(name: object, datagram: bytes) -> bytes:
            *_, receiver = name  # type: ignore[misc]
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


def on(kind: type, change: Callable[[Any, int], None]) -> Callable[[Schedule], Tamper]:
    """Change every state of a kind. `change` gets its receiver."""

    def apply(stamped: recovery.Stamped, receiver: int) -> None:
        state = stamped.state
        if isinstance(state, kind):
            change(state, receiver)
            stamped.state = state

    return rewriting(lambda _schedule: apply)


def forget_chunk_numbers(report: recovery.Status, _receiver: int) -> None:
    """Do not report the chunk numbers that the trees have used."""
    channels = report.channels
    for channel in channels:
        channel.next_chunks = [0] * len(channel.next_chunks)
    report.channels = channels


def see_nothing(report: recovery.Status, _receiver: int) -> None:
    """Do not report that a rail is unfit or broken."""
    channels = report.channels
    for channel in channels:
        channel.unfit = channel.broken = False
    report.channels = channels


def boundary_of_its_own(order: recovery.Decision, receiver: int) -> None:
    """Give each rank a different first call for the same decision."""
    committed = order.committed
    committed.boundary -= min(committed.boundary, receiver)
    order.committed = committed


def answer_early(schedule: Schedule, *, with_position: bool) -> Change:
    """Count an answer to an earlier attempt as one to the current, or with no position no answer at all."""
    present = [0]
    empty = recovery.Position(0, [0] * schedule.rails, [0] * schedule.rails)

    def change(stamped: recovery.Stamped, _receiver: int) -> None:
        state = stamped.state
        if isinstance(state, recovery.Decision):
            present[0] = state.prepare.attempt if state.prepare is not None else 0
        elif present[0] and (state.prepared is not None or not with_position):
            position = state.prepared.position if with_position else empty
            state.prepared = recovery.Prepared(present[0], position)
            stamped.state = state

    return change


def any_order(_schedule: Schedule) -> Change:
    """Treat an overtaken decision as the newest one."""
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
    """Drop all goodbyes, so that a rank cannot tell the others about a death."""

    def tamper(name: object, datagram: bytes) -> bytes | None:
        *_, receiver = name  # type: ignore[misc]
        decoded = recovery.decode(datagram, key_of(receiver), schedule.ranks, schedule.rails)
        assert isinstance(decoded, recovery.Datagram)
        return None if isinstance(decoded.body, recovery.Goodbye) else datagram

    return tamper


# --- mutants of the agent and the network ---


class SubmitsWhileFrozen(Host):
    """A rank submits calls between its answer and the decision."""

    def submit(self) -> None:
        freeze, self.prepare = self.prepare, None
        super().submit()
        self.prepare = freeze


class SaysOnce(Network):
    """A rank sends each state only once, although it may be lost."""

    def __init__(self, rails: int, link: Link, seed: int) -> None:
        super().__init__(rails, link, seed)
        self.said: set[tuple[int, int, int, int]] = set()

    def put(self, sender: int, rail: int, receiver: int, datagram: bytes) -> None:
        decoded = recovery.decode(datagram, key_of(receiver), len(self.hosts), self.rails)
        assert isinstance(decoded, recovery.Datagram)
        if isinstance(decoded.body, recovery.Stamped):
            key = (rail, sender, receiver, decoded.body.stamp.serial)
            if key in self.said:
                return
            self.said.add(key)
        super().put(sender, rail, receiver, datagram)


DEFAULT = recovery.Options(rank=0, world_size=2, rails=1)

MUTANTS: dict[str, Make] = {
    "chunk numbers are forgotten": partial(Schedule, tamper=on(recovery.Status, forget_chunk_numbers)),
    "nobody says what it hears": partial(Schedule, tamper=on(recovery.Status, see_nothing)),
    "each rank has a boundary of its own": partial(
        Schedule, tamper=on(recovery.Decision, boundary_of_its_own)
    ),
    "an answer to any attempt counts": partial(
        Schedule, tamper=rewriting(partial(answer_early, with_position=True))
    ),
    "a decision without all answers": partial(
        Schedule, tamper=rewriting(partial(answer_early, with_position=False))
    ),
    "orders out of order": partial(Schedule, tamper=rewriting(any_order)),
    "farewells stay out": partial(Schedule, tamper=farewells_stay_out),
    "states are not repeated": partial(Schedule, network=SaysOnce),
    "calls go on while frozen": partial(Schedule, host=SubmitsWhileFrozen),
    "no hold": partial(Schedule, hold=MILLISECOND),
    "patience without end": partial(Schedule, least_silence=SECOND, most_silence=SECOND),
    "no patience": partial(Schedule, least_silence=DEFAULT.heartbeat, most_silence=DEFAULT.heartbeat),
    "lateness means nothing": partial(BusyMachine, most_leeway=0),
    "busy and impatient": partial(BusyMachine, most_silence=DEFAULT.least_silence, most_leeway=0),
}
