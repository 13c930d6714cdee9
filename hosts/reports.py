# SPDX-License-Identifier: Apache-2.0
"""Counts and records of a communicator."""

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
    """Hold the counts of one aggregation tree of an in-network rail since it was formed, over all moves."""

    group: int  # its present number in the switches; changes with every move
    slots: int  # most chunks in flight
    in_flight: int  # chunks
    window: int  # most chunks in flight now, by the delay that they cause
    rtt_s: float  # smoothed round-trip time
    contributions: int  # chunks sent for the first time
    results: int  # chunks
    retransmissions: int  # chunks
    early_retransmissions: int  # retransmissions that a gap caused, not the timer
    timeouts: int  # of the retransmission timer
    stale: int  # results from before a move
    duplicates: int  # results that had arrived before
    mismatches: int  # results of contributions that did not belong together
    refused: int  # packets: malformed, from strangers, or impossible
    probes_sent: int
    probes_answered: int
    nonfinite_chunks: int  # chunks that took a second exchange for their NaN and Inf
    moves: int  # to another place in the network
    error_bound: float  # greatest error that fixed point can have caused in an element so far
    # Of slices that were multicast. `refused`, `stale` and `duplicates` count their packets, too.
    multicasts: int
    multicast_bytes: int  # of tensors, sent once to all ranks
    fetched_bytes: int  # of tensors, received again from a peer: the first copy was lost or late
    answered_bytes: int  # of tensors, sent again to peers


@dataclass(frozen=True)
class SentBytes:
    """Split the `bytes_sent` of a rail by purpose."""

    payload: int  # data of slices, sent for the first time, in the rail's own format
    headers: int  # headers of payload packets, and acknowledgements
    resends: int  # whole packets sent again; this class and the following ones include headers
    recovery: int  # repair channels, and trials of a restarted rail
    heartbeats: int  # signs of life
    control: int  # agreement among ranks, and probes


@dataclass(frozen=True)
class RailReport:
    """Hold a rail's counts since it was opened. Bytes on the wire include Ethernet headers."""

    name: str
    kind: str
    share: float  # of large tensors
    slices: int
    payload_bytes: int  # of tensors that this rail has carried
    bytes_sent: int
    sent: SentBytes
    bytes_received: int
    packets_sent: int
    packets_received: int
    retransmissions: int
    duplicates: int
    malformed: int  # packets and connections refused
    busy_s: float  # seconds with a slice in progress
    state: str = "up"  # or "down", or "recovering": the ranks test whether it works again
    reason: str = ""  # why it is not up; for the last working rail, its present problem
    failures: int = 0  # how often the ranks have excluded it
    last_failure: str = ""  # why the ranks excluded it last
    down_s: float = 0.0  # total seconds of exclusion
    epoch: int = 0  # number of the ranks' last decision about the rails in use
    incarnation: int = 0  # number of restarts of its main channel
    groups: tuple[GroupReport, ...] = ()  # one per aggregation tree
    send_drops: int = 0  # packets of an in-network rail that this host's kernel did not send
    segmentation_refused: int = 0  # super-packets that the kernel did not segment: sent packet by packet
    multicast_bytes: int = 0  # of tensors, sent once to all ranks
    fetched_bytes: int = 0  # of tensors, received again from a peer: the first copy was lost or late
    rings: int = 0  # parts of tensors that went round a ring of racks and single ranks
    ring_messages: int = 0  # sent in these rings: 2 (members - 1) per part


@dataclass(frozen=True)
class Stats:
    """Hold the counts of all rails.

    Attributes:
        rails: One report per rail, in the order in which the rails were given.
    """

    rails: tuple[RailReport, ...]


class Reporter:
    """Reads the counts of rails from an agent. `watch` sets the rails."""

    def __init__(self, agent: Agent) -> None:
        """Read the counts of this agent."""
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
        """Report these rails.

        `shares` returns their shares of large tensors, `surveys` the op indices of surveys.
        """
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
        """Return this rank's UDP and TCP ports by rail. Each packet has one as source or destination port."""
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
    """Return the report of a rail from its native RailStats, RailState and GroupStats, in seconds."""
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
    """Return the bytes sent of a native RailStats by class. Bytes without a native class are headers."""
    classes = {f.name: getattr(native.sent, f.name) for f in fields(SentBytes) if f.name != "headers"}
    return SentBytes(headers=native.bytes_sent - sum(classes.values()), **classes)


def group_report(native: Any) -> GroupReport:
    """Return a native GroupStats with times in seconds."""
    counts = {field.name: getattr(native, field.name, None) for field in fields(GroupReport)}
    return GroupReport(**{**counts, "rtt_s": native.rtt_ns / 1e9})


@dataclass(frozen=True)
class Record:
    """Describe one slice of one call after its end.

    Attributes:
        op_index: Number of the call in its communicator.
        rail: Name of the rail.
        start_s: Begin, in seconds of `time.monotonic()`.
        end_s: End, in seconds of `time.monotonic()`.
        bytes: Bytes of the slice.
        survey: Whether the call is a small one of railweave, in which ranks share their measurements.
        repair: Whether the rail carried the slice in place of a failed rail.
    """

    op_index: int
    rail: str
    start_s: float
    end_s: float
    bytes: int
    survey: bool = False
    repair: bool = False


def record(native: Any, rail: str, survey: bool) -> Record:
    """Return a native SliceRecord in seconds, with its rail's name."""
    start_s, end_s = native.start_ns / 1e9, native.end_ns / 1e9
    return Record(native.op_index, rail, start_s, end_s, native.bytes, survey, native.repair)
