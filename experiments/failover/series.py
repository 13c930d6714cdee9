# SPDX-License-Identifier: Apache-2.0
"""The ranks that reduce back to back in one lab, and the trials run on them."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Mapping

from railweave.experiments.failover.figures import BASELINE_S, SETTLE_S, Curve, Window, curve, figures
from railweave.experiments.failover.kinds import OF_TREES, RANK_COMPUTES, Kind
from railweave.experiments.failover.trace import Watch
from railweave.experiments.failover.values import (
    EXCLUDED,
    HUNG,
    KEPT,
    NOT_BACK,
    PEER_LOST,
    WENT_ON,
    Case,
    Trial,
)
from railweave.experiments.hosts import JobOptions, module_command, start_rank
from railweave.topologies.errors import LabError
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.processes import Child

WORKER = "railweave.experiments.failover.worker"
JOB = "failover"
START_S = 60.0
JITTER_S = 0.4  # range of the random delay before a fault
AGAIN_S = (0.0, 0.3)  # random time between a repair and the same fault again
CLEAR_S = 0.3  # calls that end this long after a fault have begun after it


class Series:
    """One job in a lab."""

    def __init__(self, lab: Lab, case: Case) -> None:
        """Nothing happens before `start`."""
        self._lab = lab
        self._case = case
        self._options = case.options
        options = case.options
        given = {
            "collective": options.collective,
            "bytes": options.bytes,
            "dtype": options.dtype,
            "compute": options.compute_s,
        }
        arguments = [part for name, value in given.items() for part in (f"--{name}", f"{value}")]
        self._job = JobOptions(JOB, module_command(WORKER, *arguments), timeout_s=case.options.deadline_s)
        self._children: dict[int, Child] = {}
        self._watch = Watch(lab, len(lab.topology.hosts))
        self.curve: Curve | None = None  # of the first trial

    async def start(self) -> None:
        """Start all ranks."""
        for rank in range(len(self._lab.topology.hosts)):
            await self._start_rank(rank)

    async def read(self) -> None:
        """Read the ranks' messages until all have ended with status 0; LabError if one does not."""
        await self._watch.read()

    async def _begun(self) -> None:
        """Wait until all ranks reduce."""
        if not await self._watch.until(lambda traces: all(trace.calls for trace in traces), START_S):
            raise LabError(f"not all ranks made progress within {START_S:g} s; see {self._case.folder}")

    async def _start_rank(self, rank: int) -> None:
        self._children[rank] = await start_rank(self._lab, self._job, rank)

    def stop(self) -> None:
        """Signal the ranks to end after a common last call."""
        self._children[0].signal(signal.SIGUSR1)

    async def trials(self, on_trial: Callable[[Trial], None]) -> list[Trial]:
        """Run the case's trials, one after the other, until one leaves the job hung or a rail excluded."""
        done: list[Trial] = []
        await self._begun()
        for number in range(self._case.first, self._options.trials):
            rng = self._case.rng(number)
            await self._progress(time.monotonic() + BASELINE_S + rng.uniform(0, JITTER_S))
            kind = self._case.kind
            if kind:
                trial = await self._fail_a_rail(kind, number, rng)
            elif self._case.name == RANK_COMPUTES:
                trial = await self._compute(number, rng)
            else:
                trial = await self._lose_a_rank(number, rng)
            done.append(trial)
            on_trial(trial)
            if trial.outcome in (HUNG, NOT_BACK):
                break  # the next fault would not be the only one
        return done

    async def _progress(self, instant: float) -> bool:
        """Wait until all ranks have completed calls past an instant; False if one does not in time."""
        deadline_s = instant - time.monotonic() + self._options.deadline_s
        return await self._watch.until(
            lambda traces: all(trace.progress > instant for trace in traces), deadline_s
        )

    async def _fail_a_rail(self, kind: Kind, number: int, rng: random.Random) -> Trial:
        """Inject a fault into a rail, and repair it."""
        rail, watch, begin = self._case.rail, self._watch, time.monotonic()
        for trace in watch.logs:
            trace.forget(begin - BASELINE_S)
        wrong, failures = watch.wrong, watch.failures()
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
        if kind in OF_TREES:
            await self._all_switches_ready()
        went_on = went_on and await self._progress(repaired.end)
        back = went_on and await watch.until(
            lambda traces: all(trace.first_use(rail, repaired.end) for trace in traces),
            self._options.deadline_s,
        )
        end = time.monotonic() + (SETTLE_S + BASELINE_S if back else 0.0)
        went_on = went_on and await self._progress(end)
        window = Window(injected.begin, repair_begin, repaired.end, end)
        if self.curve is None:
            self.curve = curve(watch.logs, window)
        errors = self._errors(begin)
        return Trial(
            fault=kind.name,
            rail=rail,
            number=number,
            where=f"{fault.name} {fault.where}",
            outcome=WENT_ON if back and went_on else NOT_BACK if went_on else HUNG,
            expected=back and went_on,
            errors=errors,
            wrong=watch.wrong - wrong,
            inject_s=injected.end - injected.begin,
            figures=figures(watch.logs, rail, window),
            failures=watch.failures().get(rail, 0) - failures.get(rail, 0),
            others=tuple(name for name in _more(failures, watch.failures()) if name != rail),
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

    def _errors(self, since: float) -> tuple[str, ...]:
        return tuple(
            f"rank {rank}: {error.kind}: {error.text}"
            for rank, trace in enumerate(self._watch.logs)
            for error in trace.errors
            if error.at >= since
        )

    async def _compute(self, number: int, rng: random.Random) -> Trial:
        """Make a rank compute for long: no rail may be excluded, and no error raised."""
        rank = rng.randrange(len(self._children))
        begin, wrong, failures = time.monotonic(), self._watch.wrong, self._watch.failures()
        self._children[rank].signal(signal.SIGUSR2)
        patience_s = self._options.compute_s + self._options.deadline_s
        computed = await self._watch.until(lambda traces: traces[rank].computed[0] > begin, patience_s)
        went_on = computed and await self._progress(time.monotonic() + SETTLE_S)
        since, until = self._watch.logs[rank].computed
        others = _more(failures, self._watch.failures())
        return Trial(
            fault=self._case.name,
            rail=self._case.rail,
            number=number,
            where=f"rank {rank} for {until - since:.1f} s",
            outcome=HUNG if not went_on else EXCLUDED if others else KEPT,
            expected=went_on and not others,
            errors=self._errors(begin),
            wrong=self._watch.wrong - wrong,
            inject_s=0.0,
            figures=None,
            others=others,
        )

    async def _lose_a_rank(self, number: int, rng: random.Random) -> Trial:
        """Kill a rank; the others must name it, and continue when it has been restarted."""
        rank = rng.randrange(len(self._children))
        wrong, injected = self._watch.wrong, time.monotonic()
        await self._lab.kill_worker(self._children[rank])
        inject_s = time.monotonic() - injected
        others = [trace for other, trace in enumerate(self._watch.logs) if other != rank]
        notified = await self._watch.until(
            lambda _: all(trace.first_error(injected) for trace in others), self._options.deadline_s
        )
        firsts = [error for trace in others if (error := trace.first_error(injected))]
        restarted = time.monotonic()
        await self._start_rank(rank)
        formed = await self._watch.until(
            lambda traces: all(trace.joined > injected and trace.progress > trace.joined for trace in traces),
            self._options.deadline_s,
        )
        strange = [error for error in firsts if (error.kind, error.lost) != (PEER_LOST, rank)]
        return Trial(
            fault=self._case.name,
            rail=self._case.rail,
            number=number,
            where=f"rank {rank}",
            outcome=HUNG if not (notified and formed) else "another error" if strange else PEER_LOST,
            expected=notified and formed and not strange,
            errors=tuple(f"{error.kind}: {error.text}" for error in strange),
            wrong=self._watch.wrong - wrong,
            inject_s=inject_s,
            figures=None,
            error_s=max(error.at for error in firsts) - injected if notified else None,
            formed_s=max(trace.joined for trace in self._watch.logs) - restarted if formed else None,
        )


def _more(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    """Return the rails that have failed since."""
    return tuple(rail for rail, failures in after.items() if failures > before.get(rail, 0))
