# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks in one process, over loopback, without a controller."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from queue import Queue
from typing import TypeVar

import numpy as np
import pytest

from railweave._native.agent import Stall
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import CollectiveMismatch, PeerLost
from railweave.hosts.events import (
    AlgorithmJob,
    Decision,
    Event,
    GroupMoved,
    GroupPaused,
    InaGroup,
    RailOffer,
    Ring,
    Sums,
)
from railweave.hosts.options import Options, parse_rails

DEADLINE_S = 30.0
SECRET = b"a secret of the ranks of one job"  # a controller draws one for every job

Result = TypeVar("Result")


def skip_unless_possible(rails: str) -> None:
    """Skip the test if it uses RDMA rails without raw sockets. RDMA in user space needs them."""
    try:
        if "rdma" in rails:
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    except PermissionError:
        pytest.skip("rdma rails need CAP_NET_RAW")


@dataclass
class StaticMembership:
    members: dict[int, Sequence[RailOffer]]
    refusals: dict[str, str]
    on_event: Callable[[Event], None]
    groups: dict[str, tuple[InaGroup, ...]] = field(default_factory=dict)
    rings: dict[str, Ring] = field(default_factory=dict)
    sums: dict[str, Sums] = field(default_factory=dict)
    algorithms: dict[str, AlgorithmJob] = field(default_factory=dict)
    secret: bytes = SECRET
    left: bool = False
    positions: Queue[tuple[int, int]] = field(default_factory=Queue)
    stalls: Queue[tuple[int, bool, bool]] = field(default_factory=Queue)

    def report_position(self, group: int, position: int) -> None:
        self.positions.put((group, position))

    def report_stall(self, stall: Stall) -> None:
        self.stalls.put((stall.group, stall.first_switch_ok, stall.root_ok))

    def leave(self) -> None:
        self.left = True


class StaticJob:
    """Replaces the controller: `join` waits for all ranks, and gives each rank the offers of the others."""

    def __init__(
        self,
        size: int,
        refusals: dict[str, str] | None = None,
        ina: Sequence[InaGroup] = (),
        sums: Sequence[Sums] = (),
        algorithms: Sequence[AlgorithmJob] = (),
    ) -> None:
        self.size = size
        self.algorithms = {job.rail: job for job in algorithms}
        self.sums = {of.rail: of for of in sums}
        self.ina = ina  # rank 0's groups; the other ranks differ in `child`
        self.refusals = refusals or {}
        self.offers: dict[int, Sequence[RailOffer]] = {}
        self.memberships: dict[int, StaticMembership] = {}
        self._all_in = threading.Barrier(size)
        self._meeting = threading.Barrier(size)

    def join(
        self,
        controller: str,
        *,
        job: str,
        rank: int,
        size: int,
        rails: Sequence[RailOffer],
        deadline_s: float,
        on_event: Callable[[Event], None],
        decisions: Callable[[], Sequence[Decision]],
    ) -> StaticMembership:
        assert size == self.size
        self.offers[rank] = rails
        self._all_in.wait(DEADLINE_S)
        self.memberships[rank] = StaticMembership(
            self.offers,
            self.refusals,
            on_event,
            {
                rail: tuple(replace(group, child=rank) for group in self.ina if group.rail == rail)
                for rail in {group.rail for group in self.ina}
            },
            sums=self.sums,
            algorithms=self.algorithms,
        )
        return self.memberships[rank]

    def move(self, old: InaGroup, new: InaGroup, between: Callable[[], None] = lambda: None) -> list[int]:
        """Pause a group, call `between`, and resume the group elsewhere, as the controller would.

        Return the ranks' positions.
        """
        ranks = [self.memberships[rank] for rank in range(self.size)]
        for rank in ranks:
            rank.on_event(GroupPaused(old.rail, old.tree, old.group, "a test asks for it"))
        positions = []
        for rank in ranks:
            group, position = rank.positions.get(timeout=DEADLINE_S)
            assert group == old.group
            positions.append(position)
        between()
        for number, rank in enumerate(ranks):
            rank.on_event(GroupMoved(old.group, replace(new, child=number), min(positions)))
        return positions

    def meet(self) -> None:
        """Wait for all ranks without the communicator. All earlier calls are complete afterwards."""
        self._meeting.wait(DEADLINE_S)

    def communicator(self, rank: int, rails: str = "tcp=tcp@lo", **options: object) -> Communicator:
        return Communicator(
            Options(
                rank=rank,
                world_size=self.size,
                rails=parse_rails(rails),
                controller="none",
                **{"timeout_s": DEADLINE_S, **options},  # type: ignore[arg-type]
            ),
            self.join,
        )

    def run(
        self, work: Callable[[Communicator], Result], rails: str = "tcp=tcp@lo", **options: object
    ) -> list[Result]:
        """Run `work` on every rank, each in its own thread. Return the results by rank."""

        def body(rank: int) -> Result:
            with self.communicator(rank, rails, **options) as comm:
                return work(comm)

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(body, range(self.size), timeout=2 * DEADLINE_S))

    def differ(self, odd: int, count: int, rails: str = "tcp=tcp@lo", **options: object) -> None:
        """Have one rank make a different call. All ranks raise an error with both calls, then and later."""

        def work(comm: Communicator) -> str:
            x = np.zeros(count, np.float32)
            comm.all_reduce(x)
            self.meet()
            with pytest.raises(CollectiveMismatch) as raised:
                comm.all_reduce(x, op="max" if comm.rank == odd else "sum")
            with pytest.raises(CollectiveMismatch):
                comm.all_reduce(x)
            return str(raised.value)

        for message in self.run(work, rails, **options):
            assert f"all_reduce #1 of {count} float32, sum" in message
            assert f"rank {odd} calls all_reduce #1 of {count} float32, max" in message

    def leave(self, leaver: int, count: int, rails: str = "tcp=tcp@lo", **options: object) -> None:
        """Have one rank leave after a call. In the next call all others raise an error with its number."""

        def work(comm: Communicator) -> None:
            x = np.zeros(count, np.float32)
            comm.all_reduce(x)
            self.meet()
            if comm.rank == leaver:
                return
            with pytest.raises(PeerLost) as raised:
                comm.all_reduce(x)
            assert raised.value.rank == leaver

        self.run(work, rails, **options)
