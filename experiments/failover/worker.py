# SPDX-License-Identifier: Apache-2.0
"""A rank that makes calls back to back and checks all results.

The rank reports the begin and the end of every call, and the slices that the rails carried. At its end it
reports the rails that were not used. SIGUSR2 makes the rank compute for a while between two calls, as a slow
training step does.
"""

from __future__ import annotations

import signal
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railweave.experiments.endless import Signal
from railweave.experiments.messages import emit
from railweave.hosts.communicator import Communicator

COLLECTIVES = ("all_reduce", "all_gather")
TICK_S = 0.05  # between two reports
LARGEST = 1 << 18  # largest value; sums over a few hundred ranks are exact in float32 and in fixed point
MICRO = 1e6


def call(
    comm: Communicator, stop: Signal, collective: str, size_bytes: int, dtype: str, compute_s: float
) -> None:
    """Make calls until the signal to stop. SIGUSR2 makes this rank compute for a while."""
    busy = Signal.listen(signal.SIGUSR2)
    Series(comm, collective, size_bytes // 4, dtype, compute_s).run(stop, busy)
    emit("unused", rank=comm.rank, why={each.rail: each.detail for each in comm.why() if not each.calls})


class Series:
    """The calls of one communicator."""

    def __init__(self, comm: Communicator, collective: str, count: int, dtype: str, compute_s: float) -> None:
        """Draw the tensors of all ranks, so that the results of `count` elements are known."""
        self._comm = comm
        self._compute_s = compute_s
        gathers = collective == "all_gather"
        self._collect = comm.all_gather if gathers else comm.all_reduce
        self._ranks = 1 if gathers else comm.world_size  # number of ranks that contribute to an element
        each = count // comm.world_size if gathers else count
        inputs = [_input(rank, each, dtype) for rank in range(comm.world_size)]
        self._base = inputs[comm.rank]
        self._total = np.concatenate(inputs) if gathers else np.sum(np.stack(inputs), axis=0, dtype=dtype)
        self._mine, self._result = np.empty_like(self._base), np.empty_like(self._total)
        self._rails = [rail.name for rail in comm.stats().rails]
        self._calls: list[list[Any]] = []
        self._wrong = 0
        self._reported = time.monotonic()

    def run(self, stop: Signal, busy: Signal) -> None:
        """Make calls until rank 0 marks a call as the last one."""
        emit("rails", rank=self._comm.rank, names=self._rails)
        number, last = 0, False
        while not last:
            last = self._call(number % LARGEST, last=self._comm.rank == 0 and stop.received)
            number += 1
            if last or self._wrong or self._calls[-1][1] - self._reported > TICK_S:
                self._report()
            if busy.received:
                busy.received = False
                self._compute()

    def _call(self, number: int, last: bool) -> bool:
        """Make a call and check it. Return whether rank 0 has marked it as the last one.

        Each call has a different tensor, so that a stale result is wrong in every element. The first element
        is an exception. Rank 0 uses it to mark the last call.
        """
        np.add(self._base, self._base.dtype.type(number), out=self._mine)
        self._mine[0] = last
        begin = time.monotonic()
        self._collect(self._mine, out=self._result)
        end = time.monotonic()
        records = (record for record in self._comm.drain_records() if not record.survey)
        slices = [[r.rail, r.start_s, r.end_s, r.bytes] for r in records]
        self._calls.append([begin, end, slices])
        expected = self._total + self._base.dtype.type(self._ranks * number)
        expected[:: self._mine.size] = self._result[:: self._mine.size]
        self._wrong += int(np.count_nonzero(self._result != expected))
        return bool(self._result[0])

    def _report(self) -> None:
        """Report the calls since the last report, with times in whole microseconds and rails by number."""
        since: float = self._calls[0][0]

        def micro(instant: float) -> int:
            return round((instant - since) * MICRO)

        number = {name: index for index, name in enumerate(self._rails)}
        calls = [
            [
                micro(begin),
                micro(end),
                [[number[rail], micro(s), micro(e), size] for rail, s, e, size in slices],
            ]
            for begin, end, slices in self._calls
        ]
        failures = [rail.failures for rail in self._comm.stats().rails]
        emit("calls", rank=self._comm.rank, since=since, calls=calls, wrong=self._wrong, failures=failures)
        self._calls, self._wrong, self._reported = [], 0, time.monotonic()

    def _compute(self) -> None:
        """Keep the interpreter busy, as training code does."""
        begin = time.monotonic()
        while time.monotonic() - begin < self._compute_s:
            sum(range(1000))
        emit("computed", rank=self._comm.rank, begin=begin, end=time.monotonic())


def _input(rank: int, count: int, dtype: str) -> NDArray[Any]:
    return np.random.default_rng(rank).integers(-LARGEST, LARGEST, count, np.int32).astype(dtype)
