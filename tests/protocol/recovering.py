# SPDX-License-Identifier: Apache-2.0
"""Agents of several ranks in one process, over loopback. Their tcp rails may die and come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from railweave._native.agent import Agent, Call
from railweave._native.collectives import DType, ReduceOp
from railweave._rigs.agent import BreakingAgent

DEADLINE_S = 30.0
SECRET = b"what all ranks of one job share."

Result = TypeVar("Result")
Parts = list[tuple[int, int, int]]


class Rank:
    """One agent, and the plan of all ranks: equal parts on the rails that are alive."""

    def __init__(
        self, rank: int, size: int, rails: int, peer_timeout_s: float, breaking: bool = False
    ) -> None:
        self.rank = rank
        self.size = size
        self.rails = rails
        self.agent = BreakingAgent(rank, size) if breaking else Agent(rank, size)
        self.agent.set_secret(SECRET)
        self.ports: list[int] = []
        self.control: list[int] = []
        for rail in range(rails):
            at = (f"tcp{rail}", "127.0.0.1", "lo")
            index, port = (
                self.agent.add_breaking_tcp(*at, peer_timeout_s)
                if breaking
                else self.agent.add_tcp(*at, 0, peer_timeout_s)
            )
            assert index == rail
            self.ports.append(port)
            self.control.append(self.agent.open_control(rail))

    def alive(self, op_index: int) -> list[int]:
        alive = [True] * self.rails
        for change in self.agent.changes(0):
            if change.from_op <= op_index:
                alive = change.alive
        return [rail for rail, lives in enumerate(alive) if lives]

    def parts(self, op_index: int, count: int) -> Parts:
        rails = self.alive(op_index)
        if count < 1024:  # a small call uses one rail, a different one each time
            return [(rails[op_index % len(rails)], 0, count)]
        edges = [count * place // len(rails) for place in range(len(rails) + 1)]
        return [(rail, edges[i], edges[i + 1] - edges[i]) for i, rail in enumerate(rails)]

    def submit(self, call: Call, x: NDArray[Any], out: NDArray[Any], *, start_now: bool = True) -> int:
        while True:
            point = op, _ = self.agent.plan_point(DEADLINE_S)
            if self.agent.submit(point, call, x, out, self.parts(op, call.count), start_now):
                return int(op)

    def submit_at(self, parts: Parts, call: Call, x: NDArray[Any], out: NDArray[Any]) -> int:
        """Submit a call with the given parts."""
        point = op, _ = self.agent.plan_point(DEADLINE_S)
        assert self.agent.submit(point, call, x, out, parts), "the rails have changed"
        return int(op)

    def wait(self, op: int) -> None:
        assert self.agent.wait(op, DEADLINE_S), f"rank {self.rank} has waited too long for call #{op}"
        failure = self.agent.failure_of(op)
        assert failure is None, failure.message

    def all_reduce(self, x: NDArray[Any]) -> NDArray[Any]:
        out = np.empty_like(x)
        dtype = {"f": DType.FLOAT32, "i": DType.INT32}[x.dtype.char]
        self.wait(self.submit(Call(dtype, ReduceOp.SUM, x.size), x, out, start_now=False))
        return out

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for changes of the rails until `reached`."""
        latest = time.monotonic() + DEADLINE_S
        while not reached():
            known = len(self.agent.changes(0))
            if not reached():
                assert self.agent.wait_change(known, latest - time.monotonic()), "no such change has come"
            failure = self.agent.failure()
            assert failure is None, failure.message


class Job:
    """All ranks, connected. Use it as a context manager."""

    def __init__(
        self,
        size: int,
        rails: int = 2,
        *,
        peer_timeout_s: float = 5.0,
        most_kept_bytes: int = 1 << 28,
        breaking: bool = False,
        recovers: bool = True,
    ) -> None:
        self.ranks = [Rank(rank, size, rails, peer_timeout_s, breaking) for rank in range(size)]
        for rail in range(rails):
            places = [("127.0.0.1", rank.ports[rail]) for rank in self.ranks]
            missing = self.run(lambda rank: rank.agent.connect_tcp(rail, places, DEADLINE_S))  # noqa: B023
            assert missing == [[]] * size
        self._recovery = (peer_timeout_s, most_kept_bytes)
        self._meeting = threading.Barrier(size)
        if recovers:
            self.enable_recovery()

    def enable_recovery(self) -> None:
        rails = self.ranks[0].rails
        members = [[("127.0.0.1", rank.control[rail]) for rank in self.ranks] for rail in range(rails)]
        for rank in self.ranks:
            rank.agent.enable_recovery(members, [0] * rails, *self._recovery)

    def run(self, work: Callable[[Rank], Result]) -> list[Result]:
        """Run `work` on every rank, each in its own thread."""
        with ThreadPoolExecutor(len(self.ranks)) as pool:
            return list(pool.map(work, self.ranks))

    def meet(self) -> None:
        self._meeting.wait(DEADLINE_S)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(lambda rank: rank.agent.close(1.0))
