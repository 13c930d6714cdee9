# SPDX-License-Identifier: Apache-2.0
"""One rank of the striping experiments: `python -m railweave.experiments.striping.worker`.

A contender is a set of rails with a communicator of its own. Contenders take turns, a block of calls each, so
that what disturbs the machine disturbs all of them alike. Surveys count to the block in which they are made.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import railweave
from railweave.experiments.messages import emit, run_worker
from railweave.experiments.problem import SCALES, Array, Problem, problem
from railweave.hosts.options import parse_rails

TOKEN = np.zeros(1, np.int32)


BLOCK_BYTES = 256 << 10  # calls smaller than this come in blocks of so many bytes
LONGEST_BLOCK = 32  # calls
SINGLE_WARMUP = 3  # calls of contenders that have one rail, and nothing to learn


@dataclass(frozen=True)
class Plan:
    """What is run: for each size, `blocks` blocks of calls per contender, after `warmup` calls."""

    contenders: tuple[tuple[str, ...], ...]  # rails by name
    sizes: tuple[int, ...]  # bytes
    warmup: int
    blocks: int
    calls: int = 0  # in a block; 0: as many as the size wants
    trace: bool = False  # report every call as it ends

    def block_of(self, size: int) -> int:
        """Return the calls in a block."""
        return self.calls or max(1, min(LONGEST_BLOCK, BLOCK_BYTES // size))

    def arguments(self) -> list[str]:
        """Return the worker's command line."""
        contenders = ",".join("+".join(rails) for rails in self.contenders)
        arguments = ["--contenders", contenders, "--sizes", ",".join(map(str, self.sizes))]
        arguments += ["--warmup", str(self.warmup), "--blocks", str(self.blocks), "--calls", str(self.calls)]
        return arguments + (["--trace"] if self.trace else [])

    @classmethod
    def parse(cls) -> Plan:
        """Read the worker's command line."""
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--contenders", required=True)
        parser.add_argument("--sizes", required=True)
        for name in ("--warmup", "--blocks", "--calls"):
            parser.add_argument(name, type=int, required=True)
        parser.add_argument("--trace", action="store_true")
        given = parser.parse_args()
        return cls(
            tuple(tuple(rails.split("+")) for rails in given.contenders.split(",")),
            tuple(int(size) for size in given.sizes.split(",")),
            given.warmup,
            given.blocks,
            given.calls,
            given.trace,
        )


class Contender:
    """One set of rails: its communicator, and how its calls went."""

    def __init__(self, comm: railweave.Communicator, name: str) -> None:
        """Begin without calls."""
        self.comm = comm
        self.name = name
        self.seconds: list[float] = []
        self.shares: list[dict[str, float]] = []
        self.wrong = 0

    def begin(self, task: Problem) -> None:
        """Take another size."""
        self._task = task
        self._inputs = task.inputs()
        self._result: Array = np.full_like(task.base, -1)
        self._run = 0
        self.seconds, self.shares, self.wrong = [], [], 0

    def call(self) -> float:
        """Run one allreduce, and check every element of it; its seconds."""
        begin = time.perf_counter()
        self.comm.all_reduce(self._inputs[self._run % SCALES], out=self._result)
        seconds = time.perf_counter() - begin
        self.wrong += self._task.wrong(self._run, self._result)
        self._run += 1
        return seconds

    def block(self, calls: int) -> None:
        """Run calls one after the other without looking at them; note their mean time and their split."""
        self.drain()
        self.comm.all_reduce(TOKEN, op="max")
        self.drain()
        if calls == 1:
            self.seconds.append(self.call())
            self.shares.append(self.drain())
            return
        given, out, all_reduce = self._inputs[0], self._result, self.comm.all_reduce
        begin = time.perf_counter()
        for _ in range(calls):
            all_reduce(given, out=out)
        self.seconds.append((time.perf_counter() - begin) / calls)
        self.shares.append(self.drain())
        self.wrong += self._task.wrong(0, out)

    def drain(self) -> dict[str, float]:
        """Return the shares of the slices since the last time."""
        carried: dict[str, int] = {}
        for record in self.comm.drain_records():
            if not record.survey:
                carried[record.rail] = carried.get(record.rail, 0) + record.bytes
        total = sum(carried.values())
        return {rail: count / total for rail, count in carried.items()}


def work() -> None:
    """Join one job per contender; run and report."""
    plan = Plan.parse()
    rails = {rail.name: rail for rail in parse_rails(os.environ["RAILWEAVE_RAILS"])}
    job = os.environ["RAILWEAVE_JOB"]
    with contextlib.ExitStack() as stack:
        contenders = []
        for names in plan.contenders:
            name = "+".join(names)
            comm = railweave.init(job=f"{job}-{'-'.join(names)}", rails=[rails[each] for each in names])
            contenders.append(Contender(stack.enter_context(comm), name))
        comm = contenders[0].comm
        for size in plan.sizes:
            task = problem(size // 4, "float32", "sum", comm.rank, comm.world_size)
            for contender in contenders:
                contender.begin(task)
            _trace(contenders[0], plan, size) if plan.trace else _measure(contenders, plan, size)
        emit("done", rank=comm.rank)


def _measure(contenders: Sequence[Contender], plan: Plan, size: int) -> None:
    for contender in contenders:
        for _ in range(plan.warmup if "+" in contender.name else min(plan.warmup, SINGLE_WARMUP)):
            contender.call()
    for _ in range(plan.blocks):
        for contender in contenders:
            contender.block(plan.block_of(size))
    for contender in contenders:
        emit(
            "row",
            rank=contender.comm.rank,
            bytes=size,
            contender=contender.name,
            seconds=contender.seconds,
            shares=contender.shares,
            wrong=contender.wrong,
        )


def _trace(contender: Contender, plan: Plan, size: int) -> None:
    """Tell of every call from the first one on; no other call is made in between."""
    for place in range(plan.blocks):
        seconds = contender.call()
        shares = contender.drain()
        emit(
            "call",
            rank=contender.comm.rank,
            bytes=size,
            place=place,
            seconds=seconds,
            shares=shares,
            wrong=contender.wrong,
        )


if __name__ == "__main__":
    sys.exit(run_worker(work))
