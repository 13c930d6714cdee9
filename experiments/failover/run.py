# SPDX-License-Identifier: Apache-2.0
"""The failover experiment: a lab per fault and rail, with a series of calls and faults at random instants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from railweave.experiments import fault_kinds
from railweave.experiments.errors import OptionError
from railweave.experiments.failover.series import Series
from railweave.experiments.failover.values import FailoverOptions, Trial
from railweave.experiments.fault_kinds import Kind
from railweave.experiments.hosts import require_peers
from railweave.experiments.records import Records
from railweave.topologies.lab.lab import Lab


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
