# SPDX-License-Identifier: Apache-2.0
"""The fault experiment: one lab, one series of sums, faults at random instants."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from railweave.experiments.errors import OptionError
from railweave.experiments.faults.kinds import OUTAGE_S, Kind, kinds_of
from railweave.experiments.faults.watch import RankLog, Slow, Watch
from railweave.experiments.following import cancel
from railweave.experiments.hosts import JobOptions, module_command, require_peers, start_rank
from railweave.topologies.errors import LabError
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.lab.processes import Child
from railweave.topologies.model import Topology

WORKER = "railweave.experiments.faults.worker"
JOB = "faults"
WORKER_KILLED = "worker killed"
WENT_ON, HUNG = "went on", "hung"
CLEAR_S = 0.3  # calls that end this long after a fault have begun after it
AGAIN_S = (0.0, 0.3)  # random time between a repair and the same fault again
INTERVAL_S = (0.2, 1.0)  # random time before the next fault
START_S = 60.0


@dataclass(frozen=True)
class FaultsOptions:
    """One experiment."""

    topology: Topology
    out: Path
    trials: int = 20  # of each fault
    seed: int = 1
    faults: Sequence[str] = ()  # by name; empty: all
    bytes: int = 64 << 10  # of each tensor
    restarts: int = 10  # of the controller in one trial
    deadline_s: float = 30.0  # for an error or for recovery
    switch_target: str = "embedded"


@dataclass(frozen=True)
class Trial:
    """One fault and its outcome; times in s from the fault, or from the repair where named."""

    fault: str
    where: str
    outcome: str  # WENT_ON, HUNG, or the error
    expected: bool  # the outcome is the right one, on every rank
    error_s: float | None  # until the last rank had its error
    pause_s: float | None  # of the longest call after the fault; 0: none took longer than 100 ms
    repaired_s: float | None  # from the repair to the end of that call, if there is no other path
    formed_s: float | None  # from the start of a new process until all ranks had joined again
    wrong: int  # elements


@dataclass(frozen=True)
class FaultsResult:
    """All trials."""

    options: FaultsOptions
    trials: Sequence[Trial]

    @property
    def ok(self) -> bool:
        """Whether every trial ended as expected, and no element was wrong."""
        return all(trial.expected and not trial.wrong for trial in self.trials)


async def run(
    options: FaultsOptions,
    on_phase: Callable[[str], None] = lambda _: None,
    on_trial: Callable[[Trial], None] = lambda _: None,
) -> FaultsResult:
    """Run the experiment; raises LabError and OptionError."""
    require_peers(options.topology)
    chosen = _chosen(options)
    on_phase(f"making a network of {len(options.topology.hosts)} hosts")
    async with Lab(options.topology, LabOptions(options.out, options.switch_target)) as lab:
        series = Series(lab, options)
        reading = await series.start()
        trials = asyncio.create_task(_trials(series, chosen, options, on_phase, on_trial))
        try:
            await asyncio.wait({reading, trials}, return_when=asyncio.FIRST_COMPLETED)
            if not trials.done():
                await reading  # raises its error
                raise LabError("the ranks ended before the trials did")
            result = FaultsResult(options, trials.result())
            series.stop()
            await asyncio.wait_for(reading, options.deadline_s)
        finally:
            await cancel(trials, reading)
        on_phase("taking the network down")
    return result


def _chosen(options: FaultsOptions) -> list[Kind | None]:
    """Return the faults to try, None for a killed worker; OptionError if one is impossible here."""
    known: dict[str, Kind | None] = {WORKER_KILLED: None}
    known |= {kind.name: kind for kind in kinds_of(options.restarts)}
    unknown = [name for name in options.faults if name not in known]
    if unknown:
        raise OptionError(f"unknown fault {unknown[0]!r}; there are {', '.join(known)}")
    chosen = [known[name] for name in options.faults or known]
    for kind in chosen:
        if kind is not None and (lacks := kind.missing(options.topology)):
            raise OptionError(f"fault {kind.name!r} needs {lacks}; give another --topology, or --faults")
    return chosen


async def _trials(
    series: Series,
    chosen: Sequence[Kind | None],
    options: FaultsOptions,
    on_phase: Callable[[str], None],
    on_trial: Callable[[Trial], None],
) -> list[Trial]:
    trials = []
    for kind in chosen:
        name = kind.name if kind else WORKER_KILLED
        on_phase(f"{name}: {options.trials} times")
        for number in range(options.trials):
            rng = random.Random(f"{options.seed}/{name}/{number}")  # noqa: S311 - repeatable, not secret
            await asyncio.sleep(rng.uniform(*INTERVAL_S))
            trials.append(await (series.run_fault(kind, rng) if kind else series.lose_a_rank(rng)))
            on_trial(trials[-1])
            if trials[-1].outcome == HUNG:
                return trials  # the job makes no progress: no further trial is possible
    return trials


class Series:
    """The ranks that sum, and the trials run on them."""

    def __init__(self, lab: Lab, options: FaultsOptions) -> None:
        """Nothing happens before `start`."""
        self._lab = lab
        self._options = options
        self._size = len(lab.topology.hosts)
        command = module_command(WORKER, "--bytes", str(options.bytes))
        self._job = JobOptions(JOB, command, timeout_s=options.deadline_s)
        self._children: dict[int, Child] = {}
        self.watch = Watch(lab, self._size)

    async def start(self) -> asyncio.Task[None]:
        """Start all ranks and wait until they make progress; return the task that reads their messages."""
        for rank in range(self._size):
            await self._start_rank(rank)
        reading = asyncio.create_task(self.watch.read())
        if not await self.watch.until(lambda logs: all(log.progress for log in logs), START_S):
            if reading.done():
                await reading
            raise LabError(f"not all ranks made progress within {START_S:g} s; see {self._options.out}")
        return reading

    async def _start_rank(self, rank: int) -> None:
        self._children[rank] = await start_rank(self._lab, self._job, rank)

    def stop(self) -> None:
        """Signal the ranks to end after a common last call."""
        self._children[0].signal(signal.SIGUSR1)

    async def _progress_past(self, instant: float) -> bool:
        return await self.watch.until(
            lambda logs: all(log.progress > instant for log in logs), self._options.deadline_s
        )

    async def run_fault(self, kind: Kind, rng: random.Random) -> Trial:
        """Inject a fault that the job must recover from."""
        fault = kind.draw(self._lab.topology, rng)
        async with Injection(self._lab, fault) as injection:
            wrong, injected = self.watch.wrong, time.monotonic()
            await injection.inject()
            for _ in range(kind.times - 1):
                await injection.repair()
                await asyncio.sleep(rng.uniform(*AGAIN_S))
                await injection.inject()
            repaired = None
            if kind.has_detour:
                went_on = await self._progress_past(time.monotonic() + CLEAR_S)
                await injection.repair()
            else:
                await asyncio.sleep(OUTAGE_S)
                await injection.repair()
                repaired = time.monotonic()
                went_on = await self._progress_past(repaired + CLEAR_S)
        await self._all_switches_ready()
        errors = {error.kind for log in self.watch.logs if (error := log.error_after(injected))}
        held_up = [slow for log in self.watch.logs if (slow := log.held_up_after(injected))]
        return Trial(
            fault=kind.name,
            where=f"{kind.times} times" if kind.times > 1 else fault.where,
            outcome=", ".join(sorted(errors)) if errors else WENT_ON if went_on else HUNG,
            expected=went_on and not errors,
            error_s=_last_error(self.watch.logs, injected) if errors else None,
            pause_s=max((slow.end - slow.begin for slow in held_up), default=0.0) if went_on else None,
            repaired_s=_last_end(held_up, repaired) if went_on and repaired is not None else None,
            formed_s=None,
            wrong=self.watch.wrong - wrong,
        )

    async def _all_switches_ready(self) -> None:
        """Wait until all switches answer the controller, so that one fault is active at a time."""
        end = time.monotonic() + self._options.deadline_s
        while time.monotonic() < end:
            try:
                await self._lab.switch_counters()
                return
            except LabError:
                await asyncio.sleep(OUTAGE_S)

    async def lose_a_rank(self, rng: random.Random) -> Trial:
        """Kill a rank; the others must name it, and sum again when it has been restarted."""
        rank = rng.randrange(self._size)
        wrong, injected = self.watch.wrong, time.monotonic()
        await self._lab.kill_worker(self._children[rank])
        others = [log for number, log in enumerate(self.watch.logs) if number != rank]
        notified = await self.watch.until(
            lambda _: all(log.error_after(injected) for log in others), self._options.deadline_s
        )
        errors = [error for log in others if (error := log.error_after(injected))]
        restarted = time.monotonic()
        await self._start_rank(rank)
        formed = await self.watch.until(
            lambda logs: all(log.joined > injected and log.progress > log.joined for log in logs),
            self._options.deadline_s,
        )
        named = all((error.kind, error.lost) == ("PeerLost", rank) for error in errors)
        kinds = {f"{error.kind}({error.lost})" if error.lost is not None else error.kind for error in errors}
        return Trial(
            fault=WORKER_KILLED,
            where=f"rank {rank}",
            outcome=("PeerLost" if named else ", ".join(sorted(kinds))) if notified and formed else HUNG,
            expected=notified and named and formed,
            error_s=_last_error(others, injected) if notified else None,
            pause_s=None,
            repaired_s=None,
            formed_s=max(log.joined for log in self.watch.logs) - restarted if formed else None,
            wrong=self.watch.wrong - wrong,
        )


def _last_end(held_up: Sequence[Slow], since: float) -> float:
    return max((slow.end - since for slow in held_up), default=0.0)


def _last_error(logs: Sequence[RankLog], since: float) -> float:
    return max(error.at - since for log in logs if (error := log.error_after(since)))
