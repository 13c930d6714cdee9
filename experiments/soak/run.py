# SPDX-License-Identifier: Apache-2.0
"""The soak run: a lab, a job with random calls, random faults, and a record with a line per event."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TextIO

from railweave.experiments import random_calls
from railweave.experiments.cpu import resident_bytes
from railweave.experiments.endless import Calls
from railweave.experiments.fault_kinds import inject_at_random
from railweave.experiments.hosts import JobOptions, require_peers
from railweave.experiments.random_calls import LARGEST
from railweave.experiments.soak.bound import LEAST_S, Timeline, limit_s
from railweave.experiments.soak.tally import Tally
from railweave.experiments.supervisor import START_S, EndlessJob, Supervisor, alongside
from railweave.experiments.trace import joined
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology

RECORD = "soak.jsonl"
SAMPLE_S = 10.0
MINUTE_S = 60.0
COMPUTE_S = 3.0
MIB = 1 << 20
WRITTEN = {  # fields of a rank's message that are written to the record, by event
    "rail": ("rail", "state", "reason"),
    "error": ("rank", "kind", "text"),
    "stuck": ("rank", "calls", "stats"),
    "unstuck": ("rank",),
    "wrong": ("rank", "elements", "call"),
}

Write = Callable[..., None]


@dataclass(frozen=True)
class SoakOptions:
    """One soak."""

    topology: Topology
    lab: LabOptions
    seconds: float
    seed: int = 1
    largest: int = LARGEST  # elements of a tensor
    deadline_s: float = 60.0  # of a call
    faults: bool = True


async def run(options: SoakOptions, tally: Tally, on_phase: Callable[[str], None] = lambda _: None) -> None:
    """Run the soak to completion. `tally` always has the counts so far.

    Raises LabError, with the cause, if the soak ends early. If cancelled, it removes the lab.
    """
    require_peers(options.topology)
    options.lab.out.mkdir(parents=True, exist_ok=True)
    with (options.lab.out / RECORD).open("w", buffering=1) as file:
        write = partial(_write, file, time.monotonic())
        on_phase(f"making a network of {len(options.topology.hosts)} hosts; record: {file.name}")
        try:
            async with Lab(options.topology, options.lab) as lab:
                await Soak(lab, options, tally, write, on_phase).run()
        finally:
            write("summary", **tally.summary())


class Soak:
    """One job with random calls in a lab, random faults, and their effects."""

    def __init__(
        self, lab: Lab, options: SoakOptions, tally: Tally, write: Write, on_phase: Callable[[str], None]
    ) -> None:
        """Take the options. Nothing happens before `run`."""
        self._lab = lab
        self._options = options
        self._tally = tally
        self._write = write
        self._on_phase = on_phase
        self._timeline = Timeline()
        self._supervisor = Supervisor(lab)
        calls = Calls(seed=options.seed, largest=options.largest, compute_s=COMPUTE_S, least_s=LEAST_S)
        job = JobOptions("soak", calls.command(), timeout_s=options.deadline_s)
        self._job = EndlessJob(self._supervisor, job, self._take)

    async def run(self) -> None:
        """Run the soak to its end, and judge its calls."""
        await self._job.start()
        self._tally.begin, self._tally.ranks = time.monotonic(), self._job.traces
        self._write("begin")  # `since` of long calls counts from here
        minutes = _every(MINUTE_S, lambda: self._on_phase(self._tally.line()))
        try:
            await alongside(self._load(), self._supervisor.read(), _every(SAMPLE_S, self._sample), minutes)
        finally:
            judge(self._options, self._timeline, self._tally, self._write)

    async def _load(self) -> None:
        await self._job.begun()
        self._on_phase("all ranks call")
        inject = partial(inject_at_random, self._lab, self._options.seed, self._record, self._none_stuck)
        left_s = self._tally.begin + self._options.seconds - time.monotonic()
        await alongside(
            self._supervisor.until(lambda: False, left_s), *([inject()] if self._options.faults else [])
        )
        self._sample()
        self._on_phase("stopping")
        await self._supervisor.stop(self._job.children[0], deadline_s=self._options.deadline_s + START_S)

    async def _none_stuck(self) -> None:
        """Wait while a call is stuck. A call that is delayed by fault after fault would look like a hang."""
        await self._supervisor.until(lambda: not any(trace.stuck for trace in self._job.traces), None)

    def _take(self, _: int, message: dict[str, Any]) -> None:
        event = message["event"]
        self._tally.stuck += event == "stuck"
        if event == "rail":
            self._timeline.rail_state(message["rail"], message["state"] == "up", message["at"])
        if event in WRITTEN:
            self._write(event, **{name: message[name] for name in WRITTEN[event]})

    def _record(self, event: str, **values: Any) -> None:
        """Record a fault or a repair."""
        if event == "fault":
            self._tally.faults[values["fault"]] += 1
            self._timeline.fault(values["rail"], time.monotonic())
        else:
            self._timeline.repaired(values["rail"], time.monotonic())
        self._write(event, **values)

    def _sample(self) -> None:
        """Sample the memory of all processes."""
        for rank, trace in enumerate(self._job.traces):
            if trace.done:
                self._tally.memory(f"rank {rank}", trace.rss_bytes / MIB)
        for name, pid in self._lab.processes().items():
            if "rank" not in name:
                with suppress(OSError):  # it has just ended
                    self._tally.memory(name, resident_bytes(pid) / MIB)
        self._write("sample", **self._tally.sample())


def judge(options: SoakOptions, timeline: Timeline, tally: Tally, write: Write) -> None:
    """Compare each long call with its time limit, and add late calls to the tally.

    Calls over unshaped links have no limit.
    """
    planes, ranks = options.topology.planes, len(tally.ranks)
    if not all(plane.rate_bps for plane in planes):
        return
    # For a rank that started late, the call was not long, and the rank has not reported it.
    for by_rank in joined(tally.ranks):
        since, until = max(call.begin for call in by_rank), max(call.end for call in by_rank)
        if until - since <= LEAST_S:
            continue
        drawn = random_calls.draw(*by_rank[0].key, ranks, options.largest)
        limit = limit_s(drawn, ranks, planes, timeline, since)
        if limit == math.inf:  # no rail came up again before the end
            continue
        waited_s = sum(call.waited_s for call in by_rank)
        took, at, limit = until - since, since - tally.begin, limit + waited_s
        tally.judged += 1
        slices = [
            [each.rail, round(each.start - since, 3), round(each.end - since, 3), each.bytes, each.repair]
            for each in by_rank[0].slices
        ]
        times = {"took_s": took, "limit_s": limit, "waited_s": waited_s}
        write("long", since=at, **times, call=str(drawn), slices=slices)
        if took > limit:
            tally.late.append(f"at {at:.1f} s, {took:.2f} s, at most {limit:.2f}: {drawn}")


async def _every(period_s: float, do: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(period_s)
        do()


def _write(file: TextIO, begin: float, event: str, **values: Any) -> None:
    """Write an event as a line of JSON. `at` is in seconds since `begin`."""
    file.write(json.dumps({"at": round(time.monotonic() - begin, 3), "event": event, **values}) + "\n")
