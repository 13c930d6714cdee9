# SPDX-License-Identifier: Apache-2.0
"""Run a scenario: in each round, every contender runs once, in the same lab. Each run gives one record.

Runs that have succeeded are not repeated. An interrupted measurement therefore continues where it stopped.
Failed runs are repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from railweave.errors import Unavailable
from railweave.experiments import provenance
from railweave.experiments.contenders import Contender, Implementation, Job
from railweave.experiments.cpu import cpu_times, runnable
from railweave.experiments.errors import OptionError
from railweave.experiments.fault_script import parse, play
from railweave.experiments.hosts import JobOptions
from railweave.experiments.joining import Outcome, bottleneck, joined
from railweave.experiments.records import FAILED, HUNG, OK, SKIPPED, RankResult, Record, Records
from railweave.experiments.scenario import Scenario
from railweave.experiments.supervisor import Supervisor, alongside, cancel, messages
from railweave.outputs import new_folder
from railweave.topologies.errors import LabError, WorkerFailed
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.values import plain

SILENCE_S = 90.0
TIMEOUT_S = 60.0  # below SILENCE_S: a rank that times out reports more than a killed rank
CONTROL_FACTOR = 0.5
SAMPLE_S = 0.2
PROCESS_BYTES = 100 << 20  # of one rank, without tensors; measured: 70 MiB, PyTorch 217 MiB, partly shared


TENSORS = 8  # of one rank: input, output, their expected values, and copies in the contender


class _HungError(Exception):
    """The ranks of a run have sent no message for too long."""


@dataclass(frozen=True)
class Run:
    """One run of one contender in one round."""

    contender: Contender
    round: int
    rate_factor: float = 1.0

    @property
    def name(self) -> str:
        """The name of the run's job."""
        words = re.findall(r"\w+", self.contender.name)
        return "-".join(["control"] * (self.rate_factor != 1.0) + [str(self.round), *words])


class Runner:
    """Measures one scenario into `out`/records, with a folder for each run."""

    def __init__(
        self,
        scenario: Scenario,
        out: Path,
        *,
        on_phase: Callable[[str], None] = lambda _: None,
        on_record: Callable[[Record], None] = lambda _: None,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Take the scenario.

        A run ends as hung if its ranks send no message for `silence_s` plus the time of its largest call
        times 20.
        """
        self.records = Records(out / "records")
        self._scenario = scenario
        self._out = out
        self._on_phase = on_phase
        self._on_record = on_record
        self._silence_s = silence_s + 20 * _largest_call_s(scenario)
        self._timeout_s = TIMEOUT_S + 20 * _largest_call_s(scenario)
        self._left: list[Run] = []
        self._controls: dict[str, Record] = {}  # successful control runs, by contender
        self._durations: dict[str, float] = {}  # duration of the last run, by contender

    async def run(self) -> list[Record]:
        """Make all runs that have not succeeded yet. Return the scenario's records, without its control runs.

        Raises OptionError, TopologyError, LabError and Unavailable. Runs that fail or hang also have records.
        """
        self._scenario.check()
        require_room(self._scenario)
        self._left = self._todo()
        while self._left:
            await self._run_lab(self._left[0].rate_factor)
        return self.records.of(self._scenario.key)

    def _todo(self) -> list[Run]:
        """Return the remaining runs, in rounds. Contenders that cannot run here get a record at once."""
        key = self._scenario.key
        known = [record for record in self.records.read(key) if record.scenario == key]
        self._controls = {r.contender: r for r in known if r.control and r.status == OK}
        done = {(r.contender, r.round, r.rate_factor) for r in known if r.status == OK}
        skipped = {(r.contender, r.error) for r in known if r.status == SKIPPED}
        able = []
        for contender in self._scenario.contenders:
            obstacle = contender.implementation().obstacle()
            if not obstacle:
                able.append(contender)
            elif (contender.name, obstacle) not in skipped:
                self._keep(self._record(Run(contender, 0), SKIPPED, obstacle))
        rounds = [(number, 1.0) for number in range(self._scenario.repetitions)]
        if self._scenario.control:
            rounds.insert(0, (0, CONTROL_FACTOR))
        runs = [Run(contender, number, factor) for number, factor in rounds for contender in able]
        todo = [run for run in runs if (run.contender.name, run.round, run.rate_factor) not in done]
        if len(todo) < len(runs):
            self._on_phase(f"{len(runs) - len(todo)} of {len(runs)} runs are already recorded")
        return todo

    async def _run_lab(self, factor: float) -> None:
        """Make the remaining runs at this fraction of the rates. Stop early if a part of the lab fails."""
        rates = tuple(round(rate * factor) for rate in self._scenario.rates)
        scenario = replace(self._scenario, rates=rates)
        options = LabOptions(
            self._out / "lab",
            scenario.switch,
            scenario.loss,
            ("--slots", str(scenario.slots)) if scenario.slots else (),
            impair=scenario.impair,
            seed=scenario.seed,
        )
        self._on_phase(f"{scenario.name}: making a network of {len(scenario.network.hosts)} hosts")
        async with Lab(scenario.network, options) as lab, _noise(scenario.noise):
            whole = True
            while whole and self._left and self._left[0].rate_factor == factor:
                run = self._left[0]
                self._on_phase(self._progress(run))
                begin = time.monotonic()
                job = self._job(lab, run, scenario)
                record, whole = await self._run_one(lab, run, job)
                self._durations[run.contender.name] = time.monotonic() - begin
                self._keep(record, Path(job.out))
                del self._left[0]

    async def _run_one(self, lab: Lab, run: Run, job: Job) -> tuple[Record, bool]:
        """Return the run's record, and whether the lab still works."""
        outcome, whole = Outcome(job), True
        status, error = OK, ""
        record = self._record(run, OK, "")
        try:
            await self._measure(lab, run, outcome)
            record = joined(record, outcome)
        except _HungError as silence:
            status, error = HUNG, str(silence)
        except (WorkerFailed, OptionError, OSError) as failure:
            status, error = FAILED, str(failure)
        except LabError as failure:  # a switch or the controller has failed
            status, error, whole = FAILED, str(failure), False
        if status != OK:
            return replace(record, status=status, error=error, extra=outcome.extra), whole
        control = None if record.control else self._controls.get(record.contender)
        return replace(record, bottleneck=bottleneck(record, control)), whole

    async def _measure(self, lab: Lab, run: Run, outcome: Outcome) -> None:
        """Run all ranks to their end, and read their results."""
        job, implementation = outcome.job, run.contender.implementation()
        wires = _wires(lab, job)
        queue: list[int] = []
        sampling = asyncio.create_task(_sample(queue))
        begin, before = time.monotonic(), cpu_times(job.services)
        try:
            async with implementation.on_lab(lab, job) as outcome.extra:
                try:
                    outcome.events = await self._follow(lab, run, job, implementation)
                finally:
                    await lab.stop_workers()
        finally:
            await cancel(sampling)
        outcome.wall_s, outcome.cpu = time.monotonic() - begin, cpu_times(job.services) - before
        outcome.run_queue = sum(queue) / len(queue) if queue else 0.0
        outcome.wires = {plane: counts - wires[plane] for plane, counts in _wires(lab, job).items()}
        outcome.results = [RankResult.read(job.result_of(rank)) for rank in range(job.size)]

    def _job(self, lab: Lab, run: Run, scenario: Scenario) -> Job:
        planes = scenario.planes_of(run.contender)
        return Job(
            contender=run.contender,
            size=len(lab.topology.hosts),
            planes=planes,
            addresses={name: tuple(nic.address for nic in lab.topology.plane(name).nics) for name in planes},
            rates_bps={name: lab.topology.plane(name).rate_bps for name in planes},
            out=str(new_folder(self.records.path).absolute()),
            timeout_s=self._timeout_s,
            workload=plain(replace(scenario.workload, verify=scenario.verify)),
            seed=scenario.seed + run.round,
            series=bool(scenario.faults),
            services=lab.processes(),
            topology=str(lab.topology_file.absolute()),
        )

    async def _follow(
        self, lab: Lab, run: Run, job: Job, implementation: Implementation
    ) -> list[tuple[float, str]]:
        """Run the ranks to their end, and play the faults from the first timed call on. Return the faults."""
        path = Path(job.out) / "job.json"
        path.write_text(json.dumps(plain(job)))
        options = JobOptions(
            run.name, (), run.contender.options.get("shares"), job.planes, timeout_s=self._timeout_s
        )
        supervisor = Supervisor(lab)
        happened: list[tuple[float, str]] = []
        begun: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        def take(_: int, message: dict[str, Any]) -> None:
            if message["event"] == "begin" and not begun.done():
                begun.set_result(message["at"])
            elif message["event"] == "progress":
                self._on_phase(_heard(run, message))

        async def faults() -> None:
            begin_s = await begun
            late_s = time.monotonic() - begin_s
            script = parse(self._scenario.faults, lab.topology)
            await play(lab, script, lambda at_s, text: happened.append((late_s + at_s, text)))

        for rank in range(job.size):
            if command := implementation.command(path, rank):
                await supervisor.start_rank(replace(options, command=command), rank, messages(take))
        try:
            await alongside(supervisor.read(self._silence_s), faults())
        except TimeoutError:
            raise _HungError(f"no message for {self._silence_s:.0f} s") from None
        return happened

    def _progress(self, run: Run) -> str:
        rounds, left = self._scenario.repetitions, len(self._left)
        which = f", round {run.round + 1} of {rounds}" if rounds > 1 else ""
        which = ", at half the rate" if run.rate_factor != 1.0 else which
        known = [self._durations.get(each.contender.name) for each in self._left]
        time_left = "" if None in known else f", about {sum(filter(None, known)):.0f} s"
        return f"{self._scenario.name}: measuring {run.contender.name}{which}; runs left: {left}{time_left}"

    def _record(self, run: Run, status: str, error: str) -> Record:
        scenario = self._scenario
        return Record(
            scenario=scenario.key,
            name=scenario.name,
            contender=run.contender.name,
            kind=run.contender.kind,
            round=run.round,
            status=status,
            error=error,
            rate_factor=run.rate_factor,
            configuration=scenario.as_json(),
            seed=scenario.seed,
            **provenance.of_run(),
        )

    def _keep(self, record: Record, folder: Path | None = None) -> None:
        self.records.append(record, folder)
        if record.control and record.status == OK:
            self._controls[record.contender] = record
        self._on_record(record)


def require_room(scenario: Scenario) -> None:
    """Raise Unavailable if the ranks do not fit into the machine's free memory."""
    hosts = len(scenario.network.hosts)
    work = scenario.workload
    tensors = sum(set(work.messages)) if work.messages else max(work.sizes)
    needed = hosts * (PROCESS_BYTES + TENSORS * tensors)
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) << 10
    if needed > free:
        raise Unavailable(
            f"scenario {scenario.name!r}: {hosts} hosts with tensors of {tensors >> 20} MiB",
            f"about {needed >> 20} MiB of free memory; {free >> 20} MiB are free",
            "take fewer hosts or smaller sizes",
        )


def _largest_call_s(scenario: Scenario) -> float:
    """Return the time that the slowest link needs for the largest tensor; 0 if all links are unshaped."""
    work = scenario.workload
    slowest = min((plane.rate_bps for plane in scenario.network.planes if plane.rate_bps), default=0)
    return max((sum(work.messages), *work.sizes)) * 8 / slowest if slowest else 0.0


def _heard(run: Run, message: dict[str, Any]) -> str:
    what = "warming up" if message["warm_up"] else f"call {message['calls']}"
    return f"{run.contender.name}: {message['size_bytes']} bytes, {what}"


def _wires(lab: Lab, job: Job) -> dict[str, Counter[str]]:
    """Return the bytes that the hosts' interfaces have sent, and the packets that they dropped, by plane."""
    counts: dict[str, Counter[str]] = {plane: Counter() for plane in job.planes}
    for plane, total in counts.items():
        for interface in lab.interface_counters(plane).values():
            total["wire_bytes"] += interface.bytes_sent
            total["dropped"] += interface.dropped
    return counts


async def _sample(queue: list[int]) -> None:
    while True:
        queue.append(runnable())
        await asyncio.sleep(SAMPLE_S)


@contextlib.asynccontextmanager
async def _noise(share: float) -> AsyncIterator[None]:
    """Keep every core busy for a share of its time."""
    cores = sorted(os.sched_getaffinity(0)) if share else []
    module = [sys.executable, "-m", "railweave.experiments.noise"]
    noises = [await asyncio.create_subprocess_exec(*module, str(core), f"{share}") for core in cores]
    try:
        yield
    finally:
        for noise in noises:
            noise.terminate()
            await noise.wait()
