# SPDX-License-Identifier: Apache-2.0
"""The soak run: a lab, ranks that make calls, random faults, and a record with a line per event."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from railweave.experiments.hosts import JobOptions, require_peers
from railweave.experiments.program.worker import command_of
from railweave.experiments.soak import worker
from railweave.experiments.soak.bound import LEAST_S, Timeline, limit_s
from railweave.experiments.soak.problem import LARGEST, Problem
from railweave.experiments.soak.random_faults import inject
from railweave.experiments.soak.tally import Tally
from railweave.experiments.supervisor import START_S, Supervisor, alongside, messages
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology

JOB = "soak"
RECORD = "soak.jsonl"
SAMPLE_S = 10.0
MINUTE_S = 60.0
MIB = 1 << 20


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


class Recorder:
    """Adds the ranks' messages to the tally and the record."""

    def __init__(self, topology: Topology, tally: Tally, write: Callable[..., None]) -> None:
        """Begin without messages."""
        self._tally = tally
        self._write = write
        self._topology = topology
        self._long: dict[tuple[int, int], list[tuple[float, float]]] = {}  # (since, at) of each rank
        self._waited_s: dict[tuple[int, int], float] = defaultdict(float)  # all ranks' waits for a processor
        self._problems: dict[tuple[int, int], Problem] = {}
        self._slices: dict[tuple[int, int], list[Any]] = {}  # of rank 0, during the call
        self.timeline = Timeline()
        self._stuck: set[int] = set()
        self.none_stuck = asyncio.Event()  # set while no call is stuck
        self.none_stuck.set()

    def take(self, rank: int, message: dict[str, Any]) -> None:
        """Add one message of a rank."""
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
                self._waited_s[key] += message["waited_s"]
                if rank == 0:
                    self._slices[key] = message["slices"]
            case "error":
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
        """Compare each long call with its time limit, and add late calls to the tally.

        Calls over unshaped links have no limit.
        """
        if not all(plane.rate_bps for plane in self._topology.planes):
            return
        ranks = len(self._topology.hosts)
        for key, spans in self._long.items():
            since, until = max(begun for begun, _ in spans), max(at for _, at in spans)
            # For a rank that started late, the call was not long, and the rank has not reported it.
            if len(spans) < ranks or until - since <= LEAST_S:
                continue
            problem = self._problems[key]
            limit = limit_s(problem, ranks, self._topology.planes, self.timeline, since)
            if limit == math.inf:  # no rail came up again before the end
                continue
            limit += self._waited_s[key]
            took, at = until - since, since - self._tally.begin
            self._tally.judged += 1
            slices = self._slices[key]
            times = {"took_s": took, "limit_s": limit, "waited_s": self._waited_s[key]}
            self._write("long", since=at, **times, call=str(problem), slices=slices)
            if took > limit:
                self._tally.late.append(f"at {at:.1f} s, {took:.2f} s, at most {limit:.2f}: {problem}")

    def _unstuck(self, rank: int) -> None:
        self._stuck.discard(rank)
        if not self._stuck:
            self.none_stuck.set()


async def run(options: SoakOptions, tally: Tally, on_phase: Callable[[str], None] = lambda _: None) -> None:
    """Run the soak to completion. `tally` always has the counts so far.

    Raises LabError, with the cause, if the soak ends early. If cancelled, it removes the lab.
    """
    require_peers(options.topology)
    options.lab.out.mkdir(parents=True, exist_ok=True)
    with (options.lab.out / RECORD).open("w", buffering=1) as file:
        write = _writer(file)
        on_phase(f"making a network of {len(options.topology.hosts)} hosts; record: {file.name}")
        try:
            async with Lab(options.topology, options.lab) as lab:
                await _soak(lab, options, tally, write, on_phase)
        finally:
            write("summary", **tally.summary())


async def _soak(
    lab: Lab, options: SoakOptions, tally: Tally, write: Callable[..., None], on_phase: Callable[[str], None]
) -> None:
    recorder, supervisor = Recorder(lab.topology, tally, write), Supervisor(lab)
    command = command_of(worker.call, options.seed, options.largest, endless=True)
    job = JobOptions(JOB, command, timeout_s=options.deadline_s)
    leader, *_ = await supervisor.start(job, messages(recorder.take))
    tally.begin = time.monotonic()
    write("begin")  # `since` of long calls counts from here

    async def calls() -> None:
        await supervisor.begun(lambda: len(tally.ranks) == len(lab.topology.hosts))
        on_phase("all ranks call")
        left_s = tally.begin + options.seconds - time.monotonic()
        record = _fault_recorder(recorder.timeline, tally, write)
        faults = [inject(lab, options.seed, record, recorder.none_stuck)] if options.faults else []
        await alongside(supervisor.until(lambda: False, left_s), *faults)
        on_phase("stopping")
        await supervisor.stop(leader, deadline_s=options.deadline_s + START_S)

    try:
        await alongside(calls(), supervisor.read(), _sample(lab, tally, write), _minutes(tally, on_phase))
    finally:
        recorder.judge()


async def _sample(lab: Lab, tally: Tally, write: Callable[..., None]) -> None:
    """Sample the memory of switches and controller. The ranks report their memory themselves."""
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
    """Return a function that writes an event as a line of JSON. `at` is in seconds since the start."""
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
