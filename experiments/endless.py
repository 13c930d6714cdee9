# SPDX-License-Identifier: Apache-2.0
"""A rank that makes calls until it is stopped, and checks all results.

`python -m railweave.experiments.endless CALLS` runs it. CALLS are `Calls` as JSON.
An error ends the communicator, but not the process. The process joins the job again, under the same name.
SIGUSR1 to rank 0 stops all ranks. SIGUSR2 makes a rank compute between two calls, as a slow training step
does. `trace.RankTrace` takes the rank's messages.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import railweave
from railweave.experiments.cpu import resident_bytes, waited_s
from railweave.experiments.hosts import module_command
from railweave.experiments.messages import emit, run_worker
from railweave.experiments.problem import Array, problem, shard_elements
from railweave.experiments.random_calls import LARGEST, MOST_JOINS, draw
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import InvalidOption, PeerLost, RailweaveError
from railweave.hosts.work import Work
from railweave.topologies.values import build, plain

STOP, COMPUTE = signal.SIGUSR1, signal.SIGUSR2
RETRY_S = 0.1  # between two attempts to join
TICK_S = 0.05  # between two reports
AT_ONCE = 4  # random calls in flight
AGREE_EVERY = 16  # most calls between two checks whether to stop
AGREE_S = 0.5  # about the most time between two checks, if all calls are the same
COMPUTE_EVERY = 400  # random calls between two computations of one rank
LOOK_S = 0.05
STUCK_S = 15.0  # longer than the largest call on one slow rail

_joins = itertools.count(1)


@dataclass(frozen=True)
class Calls:
    """The calls of an endless job: the same call again and again, or random calls."""

    collective: str = "all_reduce"  # of the same call
    bytes: int = 256 << 10
    dtype: str = "int32"
    seed: int | None = None  # from which random calls follow; None: the same call again and again
    largest: int = LARGEST  # elements of a tensor in random calls
    compute_s: float = 5.0  # duration of a computation
    least_s: float = 0.0  # calls that last longer are reported one by one

    def command(self) -> list[str]:
        """Return the command of a rank."""
        return module_command("railweave.experiments.endless", json.dumps(plain(self)))


@dataclass
class Call:
    """One call. Times are of CLOCK_MONOTONIC."""

    number: int
    text: str
    start: Callable[[], Any]  # returns the result, or a Work
    wrong: Callable[[Array], int]  # returns the number of wrong elements
    later: bool = False  # `start` returns a Work
    pending: Any = None
    begun: float = math.inf
    complete: float = math.inf  # when the rank noticed the completion
    waited: dict[int, float] = field(default_factory=dict)  # threads' waits for a core before the call


def same_call(comm: Communicator, calls: Calls) -> Callable[[int], Call]:
    """Return the call by its number. All calls use the same memory, but neighbouring calls other values."""
    size = shard_elements(calls.collective, calls.bytes, comm.world_size)
    task = problem(size, calls.dtype, "sum", comm.rank, comm.world_size, collective=calls.collective)
    given, out = np.empty_like(task.base), np.empty_like(task.result)
    start = partial(getattr(comm, calls.collective), given, out=out)

    def call(number: int) -> Call:
        task.fill(number, given)
        return Call(number, f"{calls.collective} {number}", start, partial(task.wrong, number))

    return call


def random_call(comm: Communicator, seed: int, largest: int) -> Callable[[int], Call]:
    """Return the call by its number. It follows from the seed."""

    def call(number: int) -> Call:
        drawn = draw(seed, number, comm.world_size, largest)
        task = drawn.problem(seed, comm.rank, comm.world_size)
        start = partial(drawn.start, comm, task.base)
        return Call(number, str(drawn), start, partial(task.wrong, 0), drawn.async_op)

    return call


class Series:
    """The calls of one communicator."""

    def __init__(self, comm: Communicator, calls: Calls, received: set[int]) -> None:
        """Begin without calls. `received` has the signals that the process has received."""
        # All ranks draw the same calls, and new ones after each join. A rank may have joined less often.
        joins = int(comm.all_reduce(np.array([next(_joins)], np.int32), op="max")[0])
        self._comm = comm
        self._received = received
        self._options = calls
        self._random = calls.seed is not None
        self._seed = (calls.seed or 0) * MOST_JOINS + joins
        self._call = random_call(comm, self._seed, calls.largest) if self._random else same_call(comm, calls)
        self._waits = waited_s if calls.least_s else dict
        self._in_flight: deque[Call] = deque()
        self._states: dict[str, str] = {}  # of the rails
        self._reports: list[Any] = []  # calls that are reported one by one
        self._done = self._bytes = 0
        self._longest_s = 0.0
        self._rss_bytes = 0  # resident memory while no call is in flight
        self._last, self._waited = time.monotonic(), self._waits()  # at the end of the last call
        self._agreed = self._told = self._last
        self._stuck_since = 0.0

    def run(self) -> None:
        """Make calls until rank 0 has received the signal to stop. The ranks end after the same call."""
        rails = [rail.name for rail in self._comm.stats().rails]
        self._emit("joined", at=time.monotonic(), rails=rails, seed=self._seed)
        with watched(self._look, LOOK_S):
            numbers = range(0)
            while numbers := self._next(numbers):
                for number in numbers:
                    self._begin(self._call(number))
                    if self._must_compute(number):
                        self._compute()
        unused = {each.rail: each.detail for each in self._comm.why() if not each.calls}
        self._emit("left", unused=unused)

    def waiting(self) -> list[str]:
        """Return the calls that have not ended, oldest first. Any thread may call this."""
        return [call.text for call in tuple(self._in_flight)]

    def _next(self, numbers: range) -> range:
        """Return the numbers of the calls until the next agreement. It is empty if the ranks must stop."""
        while self._in_flight:
            self._end()
        self._rss_bytes = resident_bytes(os.getpid())
        self._report()
        several = AGREE_EVERY
        if not self._random:  # calls may take seconds, and rank 0 waits for the last one before it stops
            call_s = (time.monotonic() - self._agreed) / max(len(numbers), 1)
            several = max(1, min(several, int(AGREE_S / call_s)))
        mine = several if self._comm.rank == 0 and STOP not in self._received else 0
        several = int(self._comm.all_reduce(np.array([mine], np.int32), op="max")[0])
        self._comm.drain_records()  # without the slices of this call
        self._agreed = time.monotonic()
        return range(numbers.stop, numbers.stop + several)

    def _begin(self, call: Call) -> None:
        """Make a call, and wait for it unless it is one of several in flight."""
        while len(self._in_flight) >= (AT_ONCE if call.later else 1):
            self._end()
        self._in_flight.append(call)
        call.begun, call.waited = time.monotonic(), self._waits()
        call.pending = call.start()
        if not call.later:
            self._end()

    def _end(self) -> None:
        """Wait for the oldest call, check its result and report it."""
        call = self._in_flight[0]
        result = call.pending.wait() if call.later else call.pending
        now = time.monotonic()
        call.complete = min(call.complete, now)
        self._in_flight.popleft()
        since = max(call.begun, self._last)
        if call.complete - since >= self._options.least_s:
            self._reports.append(self._report_of(call, since))
        if self._stuck_since == self._last:
            self._emit("unstuck")
        self._longest_s = max(self._longest_s, now - self._last)
        self._done += 1
        self._bytes += result.nbytes
        if wrong := call.wrong(result):
            self._emit("wrong", at=now, elements=wrong, call=call.text)
        self._last, self._waited = time.monotonic(), self._waits()
        if self._last - self._told > TICK_S:
            self._report()

    def _report_of(self, call: Call, since: float) -> list[Any]:
        """Return the number of a call, its begin and end, its wait for a core, and its slices."""
        before = self._waited if self._last > call.begun else call.waited
        waits = (after - before.get(thread, 0.0) for thread, after in self._waits().items())
        slices = [
            [each.rail, round(each.start_s, 6), round(each.end_s, 6), each.bytes, each.repair]
            for each in self._comm.drain_records()
            if each.end_s > since and not each.survey
        ]
        waited = min(call.complete - since, max(waits, default=0.0))
        return [call.number, round(since, 6), round(call.complete, 6), waited, slices]

    def _report(self) -> None:
        """Report the calls since the last report."""
        rails = {
            rail.name: {"slices": rail.slices, "failures": rail.failures, "down_s": round(rail.down_s, 3)}
            for rail in self._comm.stats().rails
        }
        counts = {"done": self._done, "bytes": self._bytes, "rss_bytes": self._rss_bytes}
        self._emit("calls", calls=self._reports, rails=rails, longest_s=round(self._longest_s, 4), **counts)
        self._reports, self._told = [], time.monotonic()
        self._done = self._bytes = 0
        self._longest_s = 0.0

    def _must_compute(self, number: int) -> bool:
        """Return whether a signal asks for a computation, or whether it is this rank's turn."""
        turn, calls = divmod(number + 1, COMPUTE_EVERY)
        own_turn = self._random and not calls and turn % self._comm.world_size == self._comm.rank
        return COMPUTE in self._received or own_turn

    def _compute(self) -> None:
        """Keep the interpreter busy, as training code does."""
        begin = time.monotonic()
        while time.monotonic() - begin < self._options.compute_s:
            sum(range(1000))
        self._received.discard(COMPUTE)
        self._emit("computed", begin=begin, end=time.monotonic())
        self._last, self._waited = time.monotonic(), self._waits()

    def _look(self) -> None:
        """Note the calls that are complete. Report new states of rails, and report stuck calls once."""
        now = time.monotonic()
        for call in tuple(self._in_flight):
            if isinstance(call.pending, Work) and call.pending.done():
                call.complete = min(call.complete, now)
        for rail in self._comm.stats().rails if self._comm.rank == 0 else ():
            if self._states.get(rail.name) != rail.state:
                self._states[rail.name] = rail.state
                reason = rail.reason or rail.last_failure
                self._emit("rail", at=now, rail=rail.name, state=rail.state, reason=reason)
        last = self._last
        if now - last > STUCK_S and self._stuck_since != last:
            self._stuck_since = last
            self._emit("stuck", calls=self.waiting(), stats=str(self._comm.stats()))

    def _emit(self, event: str, **values: Any) -> None:
        emit(event, rank=self._comm.rank, **values)


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


def work() -> None:
    """Join and make calls. Do so again after every error, until rank 0 receives the signal to stop."""
    calls = build(Calls, json.loads(sys.argv[1]), "calls")
    received: set[int] = set()
    for number in (STOP, COMPUTE):
        signal.signal(number, lambda number, _: received.add(number))
    while True:
        try:
            with railweave.init() as comm:
                Series(comm, calls, received).run()
                return
        except InvalidOption:
            raise
        except RailweaveError as error:
            lost = error.rank if isinstance(error, PeerLost) else None
            about = {"kind": type(error).__name__, "lost": lost, "text": str(error)}
            emit("error", rank=int(os.environ["RANK"]), at=time.monotonic(), **about)
            time.sleep(RETRY_S)


if __name__ == "__main__":
    sys.exit(run_worker(work))
