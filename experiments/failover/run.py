# SPDX-License-Identifier: Apache-2.0
"""The failover experiment: for every fault and rail a lab, a series of calls, faults at random instants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from railweave.experiments.errors import OptionError
from railweave.experiments.failover import kinds
from railweave.experiments.failover.figures import Curve
from railweave.experiments.failover.kinds import Kind
from railweave.experiments.failover.series import Series
from railweave.experiments.failover.values import ANY_RAIL, HUNG, Case, FailoverOptions, Trial
from railweave.experiments.following import cancel
from railweave.experiments.hosts import require_peers
from railweave.topologies.errors import LabError
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Plane


@dataclass(frozen=True)
class FailoverResult:
    """All trials, and a curve for each fault and rail."""

    options: FailoverOptions
    trials: Sequence[Trial]
    curves: Mapping[tuple[str, str], Curve]  # by fault and rail

    @property
    def ok(self) -> bool:
        """Whether every fault ended as expected, without an error or a wrong number."""
        return all(trial.expected and not trial.errors and not trial.wrong for trial in self.trials)


def check(options: FailoverOptions) -> list[tuple[Kind, Plane]]:
    """Return the kinds of faults, each with a rail that it hits; OptionError if something cannot be."""
    require_peers(options.topology)
    names = [plane.name for plane in options.topology.planes]
    if len(names) < 2 and options.topology.planes[0].kind != "ina":
        raise OptionError(f"rails {', '.join(names)}: a failover needs a second rail, as in --rails tcp,tcp")
    unknown = [name for name in options.rails if name not in names]
    if unknown:
        raise OptionError(f"no rail {unknown[0]!r} to fail; rails are {', '.join(names)}")
    return kinds.chosen(options.faults, [options.topology.plane(name) for name in options.rails or names])


async def run(
    options: FailoverOptions,
    on_phase: Callable[[str], None] = lambda _: None,
    on_trial: Callable[[Trial], None] = lambda _: None,
) -> FailoverResult:
    """Run the experiment; raises LabError and OptionError."""
    chosen = check(options)
    trials: list[Trial] = []
    curves: dict[tuple[str, str], Curve] = {}
    wanted = options.faults or kinds.OF_RANKS
    cases: list[tuple[str, str, Kind | None]] = [(kind.name, plane.name, kind) for kind, plane in chosen]
    cases += [(name, ANY_RAIL, None) for name in kinds.OF_RANKS if name in wanted]
    for name, rail, kind in cases:
        on_phase(f"{name}, {rail}: {options.trials} times" if kind else f"{name}: {options.trials} times")
        done = 0
        while done < options.trials:  # after a failed trial the series starts again, in a new lab
            case = Case(options, name, rail, kind, done)
            found, curve = await _in_a_lab(case, on_trial)
            trials += found
            if curve is not None:
                curves.setdefault((name, rail), curve)
            done += len(found)
    return FailoverResult(options, trials, curves)


async def _in_a_lab(case: Case, on_trial: Callable[[Trial], None]) -> tuple[list[Trial], Curve | None]:
    """Run trials until one fails; return them, and the first one's curve."""
    lab_options = LabOptions(case.folder, case.options.switch_target)
    async with Lab(case.options.topology, lab_options) as lab:
        series = Series(lab, case)
        await series.start()
        reading = asyncio.create_task(series.read())
        trying = asyncio.create_task(series.trials(on_trial))
        try:
            await asyncio.wait({reading, trying}, return_when=asyncio.FIRST_COMPLETED)
            if not trying.done():
                await reading  # raises its error
                raise LabError("the ranks ended before the trials did")
            found = trying.result()
            if found[-1].outcome != HUNG:
                series.stop()
                await asyncio.wait_for(reading, case.options.deadline_s)
        finally:
            await cancel(trying, reading)
    return found, series.curve
