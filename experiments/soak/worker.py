# SPDX-License-Identifier: Apache-2.0
"""One rank of a soak.

The rank makes the calls that follow from the seed, several at once or one after the other. It checks every
element. An error ends the communicator, but not the process.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from railweave.experiments.cpu import resident_bytes, waited_s
from railweave.experiments.endless import Signal
from railweave.experiments.messages import emit
from railweave.experiments.soak import problem as problems
from railweave.experiments.soak.bound import LEAST_S
from railweave.experiments.soak.problem import Array, Problem
from railweave.hosts.communicator import Communicator
from railweave.hosts.work import Work

AT_ONCE = 4  # calls in flight
AGREE_EVERY = 16  # calls between two checks whether to stop
COMPUTE_EVERY = 400  # calls between two long computations of one rank
COMPUTE_S = 3.0
LOOK_S = 0.05
STUCK_S = 15.0  # longer than the largest call on one slow rail
MIB = 1 << 20


_joins = itertools.count(1)


def call(comm: Communicator, stop: Signal, seed: int, largest: int) -> None:
    """Make the calls of one communicator, until the signal to stop. Each join has different calls."""
    joins = int(comm.all_reduce(np.array([next(_joins)]), op="max")[0])  # a rank may have joined less often
    Series(comm, seed * 1000 + joins, largest).run(stop)


@dataclass
class InFlight:
    """A call. Times are of CLOCK_MONOTONIC."""

    problem: Problem
    pending: Any = None  # its Work; a synchronous call waits in `_call`
    begun: float = math.inf
    complete: float = math.inf  # when the rank noticed the completion
    waited: dict[int, float] = field(default_factory=waited_s)  # threads' waits for a core before the call


class Series:
    """The calls of one communicator."""

    def __init__(self, comm: Communicator, seed: int, largest: int) -> None:
        """Begin without calls."""
        self._comm = comm
        self._seed = seed
        self._largest = largest
        self._in_flight: deque[InFlight] = deque()
        self._states: dict[str, str] = {}  # of the rails
        self._calls = self._bytes = self._wrong = 0
        self._longest_s = 0.0
        self._last, self._waited = time.monotonic(), waited_s()
        self._stuck_since = 0.0

    def run(self, stop: Signal) -> None:
        """Make calls until rank 0 has received the signal to stop."""
        with watched(self._look, LOOK_S):
            self._run(stop)

    def _look(self) -> None:
        """Note the calls that are complete. Report new states of rails, and report stuck calls once."""
        now = time.monotonic()
        for call in tuple(self._in_flight):
            if isinstance(call.pending, Work) and call.pending.done():
                call.complete = min(call.complete, now)
        if self._comm.rank == 0:
            for rail in self._comm.stats().rails:
                if self._states.get(rail.name) != rail.state:
                    self._states[rail.name] = rail.state
                    emit(
                        "rail",
                        rank=0,
                        at=now,
                        rail=rail.name,
                        state=rail.state,
                        reason=rail.reason or rail.last_failure,
                    )
        last = self._last
        if now - last > STUCK_S and self._stuck_since != last:
            self._stuck_since = last
            emit("stuck", rank=self._comm.rank, calls=self.waiting(), stats=str(self._comm.stats()))

    def waiting(self) -> list[str]:
        """Return the calls that have not ended, oldest first. Any thread may call this."""
        return [str(call.problem) for call in tuple(self._in_flight)]

    def _run(self, stop: Signal) -> None:
        number = 0
        while number % AGREE_EVERY or not self._agreed(stop):
            self._begin(problems.draw(self._seed, number, self._comm.world_size, self._largest))
            number += 1
            turn, calls = divmod(number, COMPUTE_EVERY)
            if not calls and turn % self._comm.world_size == self._comm.rank:
                time.sleep(COMPUTE_S)  # stands for computing
                self._last, self._waited = time.monotonic(), waited_s()

    def _agreed(self, stop: Signal) -> bool:
        """Agree with rank 0 whether to stop, with nothing else in flight, and report the counts."""
        while self._in_flight:
            self._end()
        request = np.array([self._comm.rank == 0 and stop.received], np.int32)
        last = bool(self._comm.all_reduce(request, op="max")[0])
        self._report()
        return last

    def _begin(self, problem: Problem) -> None:
        """Make a call, and wait for it unless it is one of several in flight."""
        while len(self._in_flight) >= (AT_ONCE if problem.async_op else 1):
            self._end()
        call = InFlight(problem)
        self._in_flight.append(call)
        call.pending = self._call(call)
        if not problem.async_op:
            self._end()

    def _call(self, call: InFlight) -> Any:
        """Return the call's Work, or its result."""
        problem = call.problem
        comm, later = self._comm, problem.async_op
        mine = problems.tensor(problem, comm.world_size, comm.rank)
        call.begun = time.monotonic()
        own = slice(comm.rank * problem.count, (comm.rank + 1) * problem.count)
        match problem.collective:
            case "all_reduce":
                return comm.all_reduce(mine, problem.op, mine if problem.in_place else None, later)
            case "reduce_scatter":
                return comm.reduce_scatter(mine, problem.op, mine[own] if problem.in_place else None, later)
            case "all_gather":
                whole = np.empty(comm.world_size * mine.size, mine.dtype)
                whole[own] = mine
                return comm.all_gather(whole[own] if problem.in_place else mine, whole, later)
            case _:
                return comm.broadcast(
                    mine if comm.rank == problem.root else np.zeros_like(mine), problem.root, later
                )

    def _end(self) -> None:
        call = self._in_flight[0]
        result = call.pending.wait() if call.problem.async_op else call.pending
        call.complete = min(call.complete, time.monotonic())
        self._in_flight.popleft()
        self._check(call, result)

    def _check(self, call: InFlight, result: Array) -> None:
        problem, now = call.problem, time.monotonic()
        since = max(call.begun, self._last)
        if call.complete - since > LEAST_S:
            times = {"since": since, "at": call.complete}
            slices = [  # rail, begin and end in seconds, bytes, whether the slice replaced another rail's
                [s.rail, round(s.start_s - since, 3), round(s.end_s - since, 3), s.bytes, s.repair]
                for s in self._comm.drain_records()
                if s.end_s > since
            ]
            before = self._waited if self._last > call.begun else call.waited
            waits = (after - before.get(thread, 0.0) for thread, after in waited_s().items())
            waited = min(call.complete - since, max(waits, default=0.0))
            about = {"seed": self._seed, "problem": asdict(problem), "slices": slices, "waited_s": waited}
            emit("long", rank=self._comm.rank, **times, **about)
        if self._stuck_since == self._last:
            emit("unstuck", rank=self._comm.rank)
        self._longest_s = max(self._longest_s, now - self._last)
        bad = problems.wrong(problem, self._comm.world_size, self._comm.rank, result)
        if bad:
            emit("wrong", rank=self._comm.rank, at=now, elements=bad, problem=str(problem))
        self._calls += 1
        self._bytes += result.nbytes
        self._wrong += bad
        self._last, self._waited = time.monotonic(), waited_s()

    def _report(self) -> None:
        """Report the counts since the last report."""
        emit(
            "tick",
            rank=self._comm.rank,
            at=time.monotonic(),
            calls=self._calls,
            bytes=self._bytes,
            wrong=self._wrong,
            longest_s=round(self._longest_s, 4),
            rss_mib=_rss_mib(),
            rails={
                rail.name: {
                    "slices": rail.slices,
                    "failures": rail.failures,
                    "down_s": round(rail.down_s, 3),
                }
                for rail in self._comm.stats().rails
            },
        )
        self._calls = self._bytes = self._wrong = 0
        self._longest_s = 0.0


@contextlib.contextmanager
def watched(look: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call `look` every `every_s` seconds, from another thread, until the block ends."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(every_s):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _rss_mib() -> float:
    return resident_bytes(os.getpid()) / MIB
