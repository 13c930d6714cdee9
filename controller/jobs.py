# SPDX-License-Identifier: Apache-2.0
"""A job in the controller: forming, running, and each rank's lease."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from railweave.controller.composition import Member
from railweave.controller.desired import Aggregation
from railweave.controller.errors import RequestError
from railweave.controller.requests import JoinRequest
from railweave.controller.tables import Connection
from railweave.topologies.model import Nic
from railweave.v1 import controller_pb2 as pb


class Lease:
    """A rank's membership: its unacknowledged events, and a timer that runs while no stream renews it.

    An event written to a stream that breaks is lost. So the lease keeps events until the rank acknowledges
    them, and the next stream begins with the kept events.
    """

    def __init__(self, number: int, rank: int, group: Group, acknowledged: int = 0) -> None:
        """Make a lease without a stream. Its events are numbered from `acknowledged` + 1."""
        self.number = number
        self.rank = rank
        self.group = group
        self.events: asyncio.Queue[pb.Event | None] = asyncio.Queue()  # for the stream, which ends with None
        self.timer: asyncio.TimerHandle | None = None
        self.stream: object | None = None  # the stream that renews the lease now
        self.left = False
        self.decisions: Sequence[pb.Decision] = ()  # the rank's last report on its rails
        self._kept: deque[pb.Event] = deque()  # not acknowledged
        self._sequence = acknowledged  # of the last event
        self._closed = False

    def send(self, event: pb.Event) -> None:
        """Queue an event for the rank."""
        self._sequence += 1
        numbered = pb.Event(sequence=self._sequence)
        numbered.MergeFrom(event)
        self._kept.append(numbered)
        self.events.put_nowait(numbered)

    def close(self) -> None:
        """Let streams end after the last event."""
        self._closed = True
        self.events.put_nowait(None)

    def acknowledge(self, sequence: int) -> None:
        """Drop the events up to this one, which the rank has received."""
        while self._kept and self._kept[0].sequence <= sequence:
            self._kept.popleft()

    def attach(self, stream: object, acknowledged: int) -> None:
        """Let a stream renew the lease from now on. An older stream ends. The missing events follow."""
        if self.timer:
            self.timer.cancel()
        self.acknowledge(acknowledged)
        self.events.put_nowait(None)
        self.events = asyncio.Queue()
        for event in (*self._kept, None) if self._closed else self._kept:
            self.events.put_nowait(event)
        self.stream = stream


@dataclass
class Pause:
    """The pause of a tree until it has a new group."""

    reason: str
    positions: dict[int, int] = field(default_factory=dict)  # by rank: its first chunk without a result
    placing: asyncio.Task[None] | None = None
    again: bool = False  # the network has changed while the tree was being placed
    down: bool = False  # the ranks have been notified that there is no place now
    timer: asyncio.TimerHandle | None = None  # the deadline of the ranks' answers


@dataclass
class RailTree:
    """One of a rail's aggregation trees. Its group, and so its place, changes when it is moved."""

    rail: str
    plane: str
    index: int
    slots: int
    placed: Aggregation | None = None
    numbers: dict[int, int] = field(default_factory=dict)  # by rank: the group number that the rank knows
    pause: Pause | None = None
    moves: int = 0

    def put(self, aggregation: Aggregation) -> None:
        """Set the tree's group. All ranks of the tree will know its number."""
        self.placed = aggregation
        self.numbers = dict.fromkeys(aggregation.hosts, aggregation.group)


@dataclass
class RailSums:
    """The sums of a netreduce rail's connections in switches."""

    plane: str
    connections: Sequence[Connection] = ()  # of each rank to the next
    nics: Mapping[int, Nic] = field(default_factory=dict)  # by rank
    window_packets: int = 0  # 0: switches never sum this rail
    # The ring's number in each switch of its tree, the root first.
    rings: dict[str, int] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()  # switches of the tree, and neighbours that its packets pass
    reason: str = ""  # why switches do not sum the rail now
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while rings are added or removed


@dataclass
class Group:
    """A running job: its ranks' requests, its trees, and the reasons of refused rails."""

    job: str
    size: int
    requests: Mapping[int, JoinRequest]
    # The ranks' shared secret. A resumed job keeps its old secret, which this controller does not know.
    secret: bytes = b""
    trees: list[RailTree] = field(default_factory=list)
    rings: dict[str, list[Member]] = field(default_factory=dict)  # by ina rail that is a ring of racks
    sums: dict[str, RailSums] = field(default_factory=dict)  # by netreduce rail
    algorithms: dict[str, pb.AlgorithmJob] = field(default_factory=dict)  # by algorithm rail
    refusals: dict[str, str] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    closed: bool = False

    @property
    def closing(self) -> bool:
        """Whether a rank has left already."""
        return any(lease.left for lease in self.leases.values())

    def tree(self, rank: int, number: int) -> RailTree | None:
        """Return the tree that a rank knows by a group number."""
        return next((tree for tree in self.trees if tree.numbers.get(rank) == number), None)

    def notify(self, event: pb.Event) -> None:
        """Queue an event for every rank that has not left."""
        for lease in self.leases.values():
            if not lease.left:
                lease.send(event)


class Forming:
    """A job that waits for ranks. All of them wait for `done`: the group or the error."""

    def __init__(self, first: JoinRequest) -> None:
        """Begin without ranks."""
        self.job = first.job
        self.size = first.size
        self.requests: dict[int, JoinRequest] = {}
        self.done: asyncio.Future[Group] = asyncio.get_running_loop().create_future()
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())

    @property
    def missing(self) -> list[int]:
        """The ranks that have not joined."""
        return [rank for rank in range(self.size) if rank not in self.requests]

    def fail(self, error: RequestError) -> None:
        """Fail all waiting ranks with this error."""
        if not self.done.done():
            self.done.set_exception(error)
