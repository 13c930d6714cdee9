# SPDX-License-Identifier: Apache-2.0
"""The failover experiment: a lab per fault and rail, with a series of calls and faults at random instants."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from railweave.experiments import fault_kinds
from railweave.experiments.endless import COMPUTE, Calls
from railweave.experiments.errors import OptionError
from railweave.experiments.failover.figures import BASELINE_S, SETTLE_S, Window, curve, figures
from railweave.experiments.failover.values import (
    EXCLUDED,
    HUNG,
    KEPT,
    NOT_BACK,
    PEER_LOST,
    WENT_ON,
    FailoverOptions,
    Trial,
)
from railweave.experiments.fault_kinds import RANK_COMPUTES, Kind
from railweave.experiments.figures import run_by
from railweave.experiments.hosts import JobOptions, require_peers
from railweave.experiments.records import Record, Records, Sample
from railweave.experiments.supervisor import EndlessJob, Supervisor, alongside
from railweave.experiments.trace import RankTrace, error_texts, joined, wrong_elements
from railweave.topologies.errors import LabError
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab

JITTER_S = 0.4  # range of the random delay before a fault
AGAIN_S = (0.0, 0.3)  # range of the random time between a repair and the next injection of the fault
CLEAR_S = 0.3  # a call that ends this long after a fault has begun after the fault


@dataclass(frozen=True)
class FailoverResult:
    """All trials."""

    options: FailoverOptions
    trials: Sequence[Trial]

    @property
    def ok(self) -> bool:
        """Whether every fault ended as expected, without an error or a wrong number."""
        return all(trial.ok for trial in self.trials)


def check(options: FailoverOptions) -> list[tuple[Kind, str]]:
    """Return the kinds of faults, each with a rail that it hits. Raise OptionError for invalid options."""
    require_peers(options.topology)
    names = [plane.name for plane in options.topology.planes]
    if len(names) < 2 and options.topology.planes[0].kind != "ina":
        raise OptionError(
            f"rails {', '.join(names)}", "a second rail, which takes over", "add one, as in --rails tcp,tcp"
        )
    unknown = [name for name in options.rails if name not in names]
    if unknown:
        raise OptionError(f"rail {unknown[0]!r}", f"one of {', '.join(names)}", "correct the name")
    return fault_kinds.chosen(
        options.faults, [options.topology.plane(name) for name in options.rails or names]
    )


async def run(
    options: FailoverOptions,
    on_phase: Callable[[str], None] = lambda _: None,
    on_trial: Callable[[Trial], None] = lambda _: None,
) -> FailoverResult:
    """Run the experiment. Raises LabError and OptionError.

    The calls around each fault of a rail are written to the folder records in the lab's folder.
    """
    trials: list[Trial] = []
    records = Records(options.lab.out / "records")
    for kind, rail in check(options):
        on_phase(f"{kind.name}{f', {rail}' if kind.words else ''}, {options.trials} trials per fault")
        done = 0
        while done < options.trials:  # after a failed trial the series starts again, in a new lab
            name = f"{kind.name} {rail} {done}".replace(f" {fault_kinds.ANY_RAIL} ", " ").replace(" ", "-")
            lab_options = replace(options.lab, out=options.lab.out / name)
            async with Lab(options.topology, lab_options) as lab:
                series = Series(lab, options, kind, rail)
                found = await series.run(done, on_trial)
            trials += found
            for record in series.records:
                records.append(record)
            done += len(found)
    return FailoverResult(options, trials)


class Series:
    """The trials of one kind of fault on one rail."""

    def __init__(self, lab: Lab, options: FailoverOptions, kind: Kind, rail: str) -> None:
        """Take the options. Nothing happens before `run`."""
        self._lab = lab
        self._options = options
        self._kind = kind
        self._rail = rail
        calls = Calls(options.collective, options.bytes, options.dtype, compute_s=options.compute_s)
        self._supervisor = Supervisor(lab)
        self._job = EndlessJob(
            self._supervisor, JobOptions("failover", calls.command(), timeout_s=options.deadline_s)
        )
        self._traces = self._job.traces
        self.records: list[Record] = []  # of the trials with a fault of a rail

    async def run(self, first: int, on_trial: Callable[[Trial], None]) -> list[Trial]:
        """Run the trials from number `first` on, until a trial leaves the job hung or a rail excluded.

        Raises LabError if a rank ends before the trials.
        """
        await self._job.start()
        return await alongside(self._trials(first, on_trial), self._supervisor.read())

    async def _trials(self, first: int, on_trial: Callable[[Trial], None]) -> list[Trial]:
        done: list[Trial] = []
        await self._job.begun()
        for number in range(first, self._options.trials):
            name, rail = self._kind.name, self._rail
            rng = random.Random(f"{self._options.seed}/{name}/{rail}/{number}")  # noqa: S311 - not secret
            await self._progress(time.monotonic() + BASELINE_S + rng.uniform(0, JITTER_S))
            wrong = wrong_elements(self._traces)
            trial = await self._trial(Trial(name, rail, number), rng)
            trial = replace(trial, wrong=wrong_elements(self._traces) - wrong)
            if (window := trial.window) is not None:
                found = figures(self._traces, rail, window)
                trial = replace(trial, figures=found, curve=curve(self._traces, window))
                self.records.append(record_of(self._options, trial, window, self._traces))
            done.append(trial)
            on_trial(trial)
            if trial.outcome in (HUNG, NOT_BACK):
                break  # the next fault would not be the only one
        if trial.outcome != HUNG:
            await self._supervisor.stop(self._job.children[0], deadline_s=self._options.deadline_s)
        return done

    async def _trial(self, trial: Trial, rng: random.Random) -> Trial:
        if self._kind.words:
            return await self._fail_a_rail(trial, rng)
        rank = rng.randrange(len(self._traces))
        return await (self._compute if self._kind is RANK_COMPUTES else self._lose_a_rank)(trial, rank)

    async def _until(self, holds: Callable[[RankTrace], object], more_s: float = 0.0) -> bool:
        """Wait until a condition holds for all ranks. Return False if it does not hold in time."""
        return await self._job.until(holds, self._options.deadline_s + more_s)

    async def _progress(self, instant: float) -> bool:
        """Wait until all ranks have completed a call after an instant. Return False at the deadline."""
        return await self._until(lambda trace: trace.progress > instant, instant - time.monotonic())

    async def _fail_a_rail(self, trial: Trial, rng: random.Random) -> Trial:
        """Inject a fault into a rail, and repair it."""
        kind, rail, begin = self._kind, self._rail, time.monotonic()
        for trace in self._traces:
            trace.calls = [call for call in trace.calls if call.end >= begin - BASELINE_S]
        failures = self._failures()
        fault = kind.draw(self._lab.topology.plane(rail), rng)
        async with Injection(self._lab, fault) as injection:
            injected = await injection.inject()
            for _ in range(self._options.restarts - 1 if kind.repeated else 0):
                await injection.repair()
                await asyncio.sleep(rng.uniform(*AGAIN_S))
                await injection.inject()
            went_on = True
            if kind.detour:
                went_on = await self._progress(time.monotonic() + CLEAR_S)
            else:
                await asyncio.sleep(self._options.outage_s)
            repair_begin = time.monotonic()
            repaired = await injection.repair()
        if kind.tree:
            await self._all_switches_ready()
        went_on = went_on and await self._progress(repaired.end)
        back = went_on and await self._until(lambda trace: trace.first_use(rail, repaired.end))
        end = time.monotonic() + (SETTLE_S + BASELINE_S if back else 0.0)
        went_on = went_on and await self._progress(end)
        return replace(
            trial,
            where=f"{fault.name} {fault.where}",
            outcome=WENT_ON if back and went_on else NOT_BACK if went_on else HUNG,
            expected=back and went_on,
            errors=tuple(error_texts(self._traces, begin)),
            inject_s=injected.end - injected.begin,
            window=Window(injected.begin, repair_begin, repaired.end, end),
            failures=self._failures()[rail] - failures[rail],
            others=self._failed_since(failures),
        )

    async def _all_switches_ready(self) -> None:
        """Wait until all switches answer the controller, so that one fault is active at a time."""
        end = time.monotonic() + self._options.deadline_s
        while time.monotonic() < end:
            try:
                await self._lab.switch_counters()
                return
            except LabError:
                await asyncio.sleep(SETTLE_S)

    async def _compute(self, trial: Trial, rank: int) -> Trial:
        """Make a rank compute for a long time. No rail may be excluded, and no error may be raised."""
        begin, failures, trace = time.monotonic(), self._failures(), self._traces[rank]
        self._job.children[rank].signal(COMPUTE)
        computed = await self._until(lambda _: trace.computed[0] > begin, self._options.compute_s)
        went_on = computed and await self._progress(time.monotonic() + SETTLE_S)
        since, until = trace.computed
        others = self._failed_since(failures)
        return replace(
            trial,
            where=f"rank {rank} for {until - since:.1f} s",
            outcome=HUNG if not went_on else EXCLUDED if others else KEPT,
            expected=went_on and not others,
            errors=tuple(error_texts(self._traces, begin)),
            others=others,
        )

    async def _lose_a_rank(self, trial: Trial, rank: int) -> Trial:
        """Kill a rank. The other ranks must name it, and continue after its restart."""
        injected, lost = time.monotonic(), self._traces[rank]
        await self._lab.kill_worker(self._job.children[rank])
        inject_s = time.monotonic() - injected
        notified = await self._until(lambda trace: trace is lost or trace.first_error(injected))
        others = [trace for trace in self._traces if trace is not lost]
        firsts = [error for trace in others if (error := trace.first_error(injected))]
        restarted = time.monotonic()
        await self._job.start_rank(rank)
        formed = await self._until(lambda trace: trace.joined > injected and trace.progress > trace.joined)
        strange = [error for error in firsts if (error.kind, error.lost) != (PEER_LOST, rank)]
        return replace(
            trial,
            where=f"rank {rank}",
            outcome=HUNG if not (notified and formed) else "another error" if strange else PEER_LOST,
            expected=notified and formed and not strange,
            errors=tuple(f"{error.kind}: {error.text}" for error in strange),
            inject_s=inject_s,
            error_s=max(error.at for error in firsts) - injected if notified else None,
            formed_s=max(trace.joined for trace in self._traces) - restarted if formed else None,
        )

    def _failures(self) -> dict[str, int]:
        """Return the number of exclusions that the ranks have reported, by rail."""
        rails = [plane.name for plane in self._lab.topology.planes]
        return {rail: max(trace.failures(rail) for trace in self._traces) for rail in rails}

    def _failed_since(self, before: Mapping[str, int]) -> tuple[str, ...]:
        """Return the rails without the fault that have failed since `before`."""
        more = (rail for rail, count in self._failures().items() if count > before[rail])
        return tuple(rail for rail in more if rail != self._rail)


def record_of(options: FailoverOptions, trial: Trial, window: Window, traces: Sequence[RankTrace]) -> Record:
    """Return the calls from shortly before the fault to the end of the trial.

    Times are relative to the fault. A call lasts from the start of the last rank to the end of the last rank.
    The bytes by rail are those of rank 0.
    """
    shown, carried = [], []
    for by_rank in joined(traces):
        begin, end = max(call.begin for call in by_rank), max(call.end for call in by_rank)
        if window.injected - BASELINE_S <= end and begin <= window.end:
            shown.append((begin, end))
            carried.append(Counter[str]())
            for piece in by_rank[0].slices:
                carried[-1][piece.rail] += piece.bytes
    sample = Sample(
        size_bytes=options.bytes,
        times_us=tuple(round((end - begin) * 1e6, 1) for begin, end in shown),
        verified=len(shown) * len(traces),
        wrong=trial.wrong,
        starts_s=tuple(round(begin - window.injected, 6) for begin, _ in shown),
        carried=tuple(carried),
    )
    configuration = {
        "hosts": len(options.topology.hosts),
        "topology": options.topology.name,
        "collective": options.collective,
        "dtype": options.dtype,
        "fault": trial.fault,
        "rail": trial.rail,
    }
    return run_by(
        f"failover: {trial.fault}, {trial.rail}",
        configuration,
        trial.number,
        contender="+".join(plane.name for plane in options.topology.planes),
        samples=(sample,),
        seed=options.seed,
        extra={
            "fault": f"{trial.fault}, {trial.rail}",
            "repaired_s": round(window.repaired - window.injected, 6),
        },
    )
