# SPDX-License-Identifier: Apache-2.0
"""The soak run: a lab, ranks that call, random faults, a record with a line per event."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from railweave.experiments.following import Following, RankError, cancel
from railweave.experiments.hosts import JobOptions, module_command, require_peers, start_job
from railweave.experiments.soak.bound import LEAST_S, Timeline, limit_s
from railweave.experiments.soak.problem import LARGEST, Problem
from railweave.experiments.soak.random_faults import inject
from railweave.experiments.soak.tally import Tally
from railweave.topologies.errors import LabError
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology

WORKER = "railweave.experiments.soak.worker"
JOB = "soak"
RECORD = "soak.jsonl"
START_S = 60.0
SAMPLE_S = 10.0
MINUTE_S = 60.0
MIB = 1 << 20


@dataclass(frozen=True)
class SoakOptions:
    """One soak."""

    topology: Topology
    out: Path
    minutes: float
    seed: int = 1
    largest: int = LARGEST  # elements of a tensor
    deadline_s: float = 60.0  # of a call
    faults: bool = True
    switch_target: str = "embedded"


class Recorder(Following[list[RankError]]):
    """Enters the ranks' messages into the tally and the record."""

    def __init__(self, lab: Lab, ranks: int, tally: Tally, write: Callable[..., None]) -> None:
        """Begin with empty logs."""
        super().__init__(lab, [[] for _ in range(ranks)])
        self._tally = tally
        self._write = write
        self._topology = lab.topology
        self._long: dict[tuple[int, int], list[tuple[float, float]]] = {}  # (since, at) of each rank
        self._problems: dict[tuple[int, int], Problem] = {}
        self._slices: dict[tuple[int, int], list[Any]] = {}  # rank 0's, meanwhile
        self.timeline = Timeline()
        self._stuck: set[int] = set()
        self.none_stuck = asyncio.Event()  # set while no call is stuck
        self.none_stuck.set()

    def take(self, log: list[RankError], message: dict[str, Any]) -> None:
        """Enter one message."""
        rank = message["rank"]
        match message["event"]:
            case "tick":
                self._tally.tick(rank, message)
            case "rail":
                self.timeline.rail_state(message["rail"], message["state"] == "up", message["at"])
                self._write("rail", **{key: message[key] for key in ("rail", "state", "reason")})
            case "long":
                problem = Problem(**message["problem"])
                key = (message["seed"], problem.number)
                self._problems[key] = problem
                self._long.setdefault(key, []).append((message["since"], message["at"]))
                if rank == 0:
                    self._slices[key] = message["slices"]
            case "error":
                log.append(RankError.of(message))
                self._unstuck(rank)
                self._tally.errors.append(f"rank {rank}: {message['kind']}: {message['text']}")
                self._write("error", rank=rank, error=message["kind"], text=message["text"])
            case "stuck":
                self._stuck.add(rank)
                self.none_stuck.clear()
                self._tally.stuck += 1
                self._write("stuck", rank=rank, calls=message["calls"], stats=message["stats"])
            case "unstuck":
                self._unstuck(rank)
                self._write("unstuck", rank=rank)
            case "wrong":
                self._write("wrong", rank=rank, elements=message["elements"], problem=message["problem"])

    def judge(self) -> None:
        """Hold each long call against its bound, and enter those beyond it; unshaped links give none."""
        if not all(plane.rate_bps for plane in self._topology.planes):
            return
        for key, spans in self._long.items():
            since, until = max(begun for begun, _ in spans), max(at for _, at in spans)
            # A rank that has not reported it made it late, so that it was not long.
            if len(spans) < len(self.logs) or until - since <= LEAST_S:
                continue
            problem = self._problems[key]
            limit = limit_s(problem, len(self.logs), self._topology.planes, self.timeline, since)
            if limit == math.inf:  # no rail came up again before the end
                continue
            took, at = until - since, since - self._tally.begin
            self._tally.judged += 1
            slices = self._slices[key]
            self._write("long", since=at, took_s=took, limit_s=limit, call=str(problem), slices=slices)
            if took > limit:
                self._tally.late.append(f"at {at:.1f} s, {took:.2f} s, at most {limit:.2f}: {problem}")

    def _unstuck(self, rank: int) -> None:
        self._stuck.discard(rank)
        if not self._stuck:
            self.none_stuck.set()


async def run(options: SoakOptions, tally: Tally, on_phase: Callable[[str], None] = lambda _: None) -> None:
    """Run the soak to completion; `tally` has the counts so far at any time.

    LabError names what ended it early; when cancelled, it removes the lab.
    """
    require_peers(options.topology)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / RECORD).open("w", buffering=1) as file:
        write = _writer(file)
        on_phase(f"making a network of {len(options.topology.hosts)} hosts; record: {file.name}")
        try:
            async with Lab(options.topology, LabOptions(options.out, options.switch_target)) as lab:
                await _soak(lab, options, tally, write, on_phase)
        finally:
            write("summary", **tally.summary())


async def _soak(
    lab: Lab, options: SoakOptions, tally: Tally, write: Callable[..., None], on_phase: Callable[[str], None]
) -> None:
    command = module_command(WORKER, "--seed", str(options.seed), "--largest", str(options.largest))
    children = list(await start_job(lab, JobOptions(JOB, command, timeout_s=options.deadline_s)))
    recorder = Recorder(lab, len(children), tally, write)
    reading = asyncio.create_task(recorder.read())
    tally.begin = time.monotonic()
    write("begin")  # `since` of long calls counts from here
    others = [
        asyncio.create_task(_sample(lab, tally, write)),
        asyncio.create_task(_minutes(tally, on_phase)),
    ]
    try:
        if not await recorder.until(lambda _: len(tally.ranks) == len(children), START_S):
            raise LabError(f"not all ranks made progress within {START_S:g} s; see {options.out}")
        on_phase("all ranks call")
        if options.faults:
            record = _fault_recorder(recorder.timeline, tally, write)
            others.append(asyncio.create_task(inject(lab, options.seed, record, recorder.none_stuck)))
        left_s = tally.begin + options.minutes * MINUTE_S - time.monotonic()
        done, _ = await asyncio.wait({reading, *others}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task  # raises its error
        if done:
            raise LabError("the ranks ended early")
        await cancel(*others)  # faults are repaired
        children[0].signal(signal.SIGUSR1)
        on_phase("stopping")
        await asyncio.wait_for(reading, options.deadline_s + START_S)
    finally:
        await cancel(reading, *others)
        recorder.judge()


async def _sample(lab: Lab, tally: Tally, write: Callable[..., None]) -> None:
    """Sample the memory of switches and controller; the ranks report their own."""
    while True:
        await asyncio.sleep(SAMPLE_S)
        for name, pid in lab.processes().items():
            if "rank" not in name and (rss := _rss_mib(pid)) is not None:
                tally.memory(name, rss)
        write("sample", **tally.sample())


def _rss_mib(pid: int) -> float | None:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it has just ended
        return None
    found = [line for line in text.splitlines() if line.startswith("VmRSS:")]
    return int(found[0].split()[1]) * 1024 / MIB if found else None


async def _minutes(tally: Tally, on_phase: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(MINUTE_S)
        on_phase(tally.line())


def _writer(file: TextIO) -> Callable[..., None]:
    """Return a function that writes an event as a line of JSON; `at` is seconds since the start."""
    begin = time.monotonic()

    def write(event: str, **values: Any) -> None:
        line = {"at": round(time.monotonic() - begin, 3), "event": event, **values}
        file.write(json.dumps(line) + "\n")

    return write


def _fault_recorder(timeline: Timeline, tally: Tally, write: Callable[..., None]) -> Callable[..., None]:
    def record(event: str, **values: Any) -> None:
        if event == "fault":
            tally.faults[values["fault"]] += 1
            timeline.fault(values["rail"], time.monotonic())
        else:
            timeline.repaired(values["rail"], time.monotonic())
        write(event, **values)

    return record
