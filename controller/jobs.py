# SPDX-License-Identifier: Apache-2.0
"""A job as the controller knows it: while it forms, while it runs, and each rank's lease on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from railweave.controller.desired import Aggregation
from railweave.controller.errors import RequestError
from railweave.controller.requests import JoinRequest
from railweave.v1 import controller_pb2 as pb


class Lease:
    """A rank's membership: its events until None, and a timer that runs while no stream renews it."""

    def __init__(self, number: int, rank: int, group: Group) -> None:
        """Make a lease that nobody watches yet."""
        self.number = number
        self.rank = rank
        self.group = group
        self.events: asyncio.Queue[pb.Event | None] = asyncio.Queue()
        self.timer: asyncio.TimerHandle | None = None
        self.stream: object | None = None  # the stream that renews it now
        self.left = False

    def attach(self, stream: object) -> None:
        """Let a stream renew the lease from now on; an older one ends, and what it has not said goes over."""
        if self.timer:
            self.timer.cancel()
        if self.stream is not None:
            old, self.events = self.events, asyncio.Queue()
            while not old.empty():
                self.events.put_nowait(old.get_nowait())
            old.put_nowait(None)
        self.stream = stream


@dataclass
class Group:
    """A job that runs. `aggregations` are its groups in the network, by rail name."""

    job: str
    size: int
    requests: Mapping[int, JoinRequest]
    aggregations: dict[str, Aggregation]
    refusals: dict[str, str]
    leases: dict[int, Lease] = field(default_factory=dict)
    ended: bool = False

    @property
    def closing(self) -> bool:
        """Whether a rank has left already."""
        return any(lease.left for lease in self.leases.values())


class Forming:
    """A job that waits for ranks; `done` gives all of them the group, or the error."""

    def __init__(self, first: JoinRequest) -> None:
        """Begin with no rank in."""
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
        """Tell all waiting ranks."""
        if not self.done.done():
            self.done.set_exception(error)
