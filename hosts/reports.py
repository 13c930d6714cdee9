# SPDX-License-Identifier: Apache-2.0
"""What a communicator tells about itself."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from railweave.hosts.options import RailSpec

if TYPE_CHECKING:
    from railweave._native.agent import Agent
    from railweave.hosts.rails import Opening


@dataclass(frozen=True)
class GroupReport:
    """One aggregation tree of an in-network rail: its counts since it was formed, over all its moves."""

    group: int  # its number in the switches now; changes with every move
    slots: int  # chunks that may be in flight
    in_flight: int
    window: int  # chunks that are let in flight now, by the delay that they cause
    rtt_s: float  # smoothed
    contributions: int
    results: int
    retransmissions: int
    early_retransmissions: int  # those that a gap caused, not the timer
    timeouts: int
    stale: int  # results of the group before a move
    duplicates: int  # results that were here already
    mismatches: int  # results of contributions that did not belong together
    refused: int  # malformed, of a stranger, or impossible
    probes_sent: int
    probes_answered: int
    nonfinite_chunks: int  # those that took a second exchange for their NaN and Inf
    moves: int
    error_bound: float  # greatest error that fixed point can have caused in an element so far
    # Slices that were multicast; refused, stale and duplicates count their packets, too.
    multicasts: int
    multicast_bytes: int  # of tensors, sent once to all
    fetched_bytes: int  # taken that a peer had to send again: they were lost, or late
    answered_bytes: int  # sent again to peers


@dataclass(frozen=True)
class SentBytes:
    """What a rail's interface has been given to send, by why; together `bytes_sent` of its report."""

    payload: int  # data of slices, the first time, in the rail's own format
    headers: int  # around it, and acknowledgements
    resends: int  # packets sent again, whole, as are all that follow
    recovery: int  # repair channels, and trials of a rail that was restarted
    heartbeats: int  # signs of life
    control: int  # what ranks agree by, and probes


@dataclass(frozen=True)
class RailReport:
    """A rail's counts since it was opened. Bytes on the wire include Ethernet headers."""

    name: str
    kind: str
    share: float  # of large tensors
    slices: int
    payload_bytes: int  # of the tensors, as far as this rail has reduced them
    bytes_sent: int
    sent: SentBytes
    bytes_received: int
    packets_sent: int
    packets_received: int
    retransmissions: int
    duplicates: int
    malformed: int  # packets and connections refused
    busy_s: float  # with a slice in progress
    state: str = "up"  # or "down", or "recovering": it is tried whether it works again
    reason: str = ""  # why it is not up, or, of the last rail that is left, what is wrong with it
    failures: int = 0  # how often the ranks have excluded it
    last_failure: str = ""  # why they did so the last time
    down_s: float = 0.0  # how long, all in all
    epoch: int = 0  # number of the last decision of the ranks about which rails live
    incarnation: int = 0  # how often it was taken up again
    groups: tuple[GroupReport, ...] = ()  # one per aggregation tree
    send_drops: int = 0  # packets that this host's kernel would not send, of an in-network rail
    segmentation_refused: int = 0  # super-packets that it would not cut: sent packet by packet
    multicast_bytes: int = 0  # of tensors, sent once to all
    fetched_bytes: int = 0  # of tensors, taken that a peer had to send again: they were lost, or late
    rings: int = 0  # of racks and single ranks: how often a part of a tensor has gone round
    ring_messages: int = 0  # sent in these: 2 (members - 1) each time


@dataclass(frozen=True)
class Stats:
    """Counts of all rails."""

    rails: tuple[RailReport, ...]


class Reporter:
    """Asks an agent for the counts of the rails in use; it has none before `watch`."""

    def __init__(self, agent: Agent) -> None:
        """Ask this one."""
        self._agent = agent
        self._rails: Sequence[Opening] = ()
        self._shares: Callable[[], Mapping[str, float]] = dict
        self._surveys: Callable[[], Container[int]] = tuple

    def watch(
        self,
        rails: Sequence[Opening],
        shares: Callable[[], Mapping[str, float]],
        surveys: Callable[[], Container[int]],
    ) -> None:
        """Report these rails; `shares` are their parts of large tensors, `surveys` the calls that are one."""
        self._rails, self._shares, self._surveys = rails, shares, surveys

    def stats(self) -> Stats:
        """Return the counts so far."""
        natives, groups, states = self._agent.stats(), self._agent.groups(), self._agent.rail_states()
        shares = self._shares()
        return Stats(
            tuple(
                rail_report(
                    rail.spec,
                    shares.get(rail.spec.name, 0.0),
                    natives[rail.index],
                    states[rail.index],
                    groups[rail.index],
                )
                for rail in self._rails
            )
        )

    def ports(self) -> dict[str, list[int]]:
        """Return this rank's ports by rail, UDP or TCP: what the rail sends comes from or goes to one."""
        return {rail.spec.name: sorted({rail.port, rail.control_port} - {0}) for rail in self._rails}

    def drain_records(self) -> list[Record]:
        """Return the slices that have ended since the last call, oldest first."""
        names = {rail.index: rail.spec.name for rail in self._rails}
        surveys = self._surveys()
        return [
            record(native, names[native.rail], native.op_index in surveys)
            for native in self._agent.drain_records()
        ]


def rail_report(spec: RailSpec, share: float, native: Any, state: Any, groups: Sequence[Any]) -> RailReport:
    """Return a native RailStats, with the rail's RailState and those of its trees, in seconds and by name."""
    others = {
        "name": spec.name,
        "kind": spec.kind,
        "share": share,
        "sent": sent_bytes(native),
        "busy_s": native.busy_ns / 1e9,
        "down_s": state.down_ns / 1e9,
        "groups": tuple(group_report(group) for group in groups),
    }
    counts = {
        f.name: getattr(native if hasattr(native, f.name) else state, f.name)
        for f in fields(RailReport)
        if f.name not in others
    }
    return RailReport(**others, **counts)


def sent_bytes(native: Any) -> SentBytes:
    """Return a native RailStats' bytes sent by class; what is in none of its classes is headers."""
    classes = {f.name: getattr(native.sent, f.name) for f in fields(SentBytes) if f.name != "headers"}
    return SentBytes(headers=native.bytes_sent - sum(classes.values()), **classes)


def group_report(native: Any) -> GroupReport:
    """Return a native GroupStats with times in seconds."""
    counts = {field.name: getattr(native, field.name, None) for field in fields(GroupReport)}
    return GroupReport(**{**counts, "rtt_s": native.rtt_ns / 1e9})


@dataclass(frozen=True)
class Record:
    """One slice of one call as it went; times in seconds of time.monotonic()."""

    op_index: int
    rail: str
    start_s: float
    end_s: float
    bytes: int
    survey: bool = False  # of a small call among those of the program, by which ranks share what they measure
    repair: bool = False  # carried in place of a rail that has failed


def record(native: Any, rail: str, survey: bool) -> Record:
    """Return a native SliceRecord in seconds, with its rail's name."""
    start_s, end_s = native.start_ns / 1e9, native.end_ns / 1e9
    return Record(native.op_index, rail, start_s, end_s, native.bytes, survey, native.repair)
