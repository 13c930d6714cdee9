# SPDX-License-Identifier: Apache-2.0
"""A sweep over sizes: the scenario that the options describe, and the rows of results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from railweave._native.collectives import Collective
from railweave.errors import Unavailable
from railweave.experiments import limits, statistics
from railweave.experiments.contenders import KINDS, Contender, require_kind
from railweave.experiments.errors import OptionError
from railweave.experiments.records import OK, Record, Sample
from railweave.experiments.runner import Runner
from railweave.experiments.scenario import Scenario, Workload
from railweave.hosts.limits import ring_volume
from railweave.topologies.errors import LabError
from railweave.topologies.model import Plane

RAILWEAVE, *BASELINES = KINDS
SOFTWARE = {"gloo": "torch", "openmpi": "openmpi"}
MULTIPATH = ("mptcp", "openmpi")  # they use all tcp planes; others have one


@dataclass(frozen=True)
class Row:
    """One size of one contender, over all rounds."""

    contender: str
    bytes: int
    work: Workload
    seconds: Sequence[float]  # duration of each call, from the last rank's start to the last rank's end
    wrong: int  # number of wrong elements, over all calls and ranks
    ranks: int
    limit_bps: float  # rate that all links together allow, 0 if unshaped
    shares: Mapping[str, float]  # by rail; only railweave reports them
    cpu_s: float = 0.0  # processor time of a rank per call
    memory_bytes: int = 0  # resident memory of the rank that uses most

    @property
    def mean_s(self) -> float:
        """Return the mean time of a call."""
        return statistics.mean(self.seconds)

    @property
    def median_s(self) -> float:
        """Return the median time of a call."""
        return statistics.median(self.seconds)

    @property
    def p99_s(self) -> float:
        """Return the 99th percentile; with fewer than 100 calls, the slowest."""
        return statistics.p99(self.seconds)

    @property
    def algbw_bps(self) -> float:
        """Return bits of the tensor per second."""
        return self.bytes * 8 / self.median_s

    @property
    def busbw_bps(self) -> float:
        """Return the bus bandwidth of nccl-tests: the rate that a ring of hosts would need on every link."""
        parts = self.work.collective.split("+")
        return self.algbw_bps * sum(ring_volume(Collective[each.upper()], self.ranks) for each in parts)

    @property
    def limit_fraction(self) -> float | None:
        """Return algbw divided by the links' limit; None if unshaped."""
        return self.algbw_bps / self.limit_bps if self.limit_bps else None


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep."""

    scenario: Scenario
    records: Sequence[Record] = ()

    @property
    def rows(self) -> dict[str, list[Row]]:
        """The rows by contender, in the order of the scenario."""
        by_contender: dict[str, list[Record]] = {}
        for record in self.records:
            by_contender.setdefault(record.contender, []).append(record)
        return {name: rows_of(records, self.scenario) for name, records in by_contender.items()}

    @property
    def versions(self) -> dict[str, str]:
        """The versions of all software that was measured."""
        return {name: version for record in self.records for name, version in record.versions.items()}

    def version(self, kind: str) -> str:
        """Return the version of the library behind this kind; empty if the kind uses no such library."""
        return self.versions.get(SOFTWARE.get(kind, ""), "")

    @property
    def ok(self) -> bool:
        """Whether no element was wrong."""
        return not any(record.wrong for record in self.records)


def with_contenders(
    scenario: Scenario,
    *,
    shares: Mapping[str, float] | None = None,
    each_alone: bool = False,
    baselines: Sequence[str] = (),
    control: bool = False,
) -> Scenario:
    """Return the scenario with its contenders.

    The first contender is railweave on all rails. With `each_alone`, railweave also runs on each rail alone.
    Baselines run on tcp planes, and in-network algorithms on the first ina plane. The topology `planes` gets
    such a plane if it has none.
    """
    rails = tuple(plane.name for plane in scenario.network.planes)
    contenders = [Contender("+".join(rails), RAILWEAVE, rails, {"shares": dict(shares)} if shares else {})]
    if each_alone and len(rails) > 1:
        contenders += [Contender(rail, RAILWEAVE, (rail,)) for rail in rails]
    for baseline in baselines:
        kind = "tcp" if baseline in BASELINES else "ina"
        require_kind(baseline, BASELINES)
        scenario = _with_plane(scenario, kind)
        used = tuple(plane.name for plane in scenario.network.planes if plane.kind == kind)
        name = Path(baseline).name  # an algorithm may be the path of a folder
        contenders.append(Contender(name, baseline, used if baseline in MULTIPATH else used[:1]))
    chosen = replace(scenario, contenders=tuple(contenders), control=control)
    chosen.check()
    return chosen


def require(contenders: Sequence[Contender]) -> None:
    """Raise Unavailable if this machine cannot run one of the contenders."""
    for contender in contenders:
        if obstacle := contender.implementation().obstacle():
            raise Unavailable(f"contender {contender.name!r}: {obstacle}")


async def run(
    scenario: Scenario,
    out: Path,
    on_phase: Callable[[str], None] = lambda _: None,
    on_row: Callable[[Row], None] = lambda _: None,
) -> Sweep:
    """Measure all contenders into `out`, a folder without records.

    `on_row` gets a contender's rows after its last round.

    Raises OptionError, LabError and TopologyError.
    """
    measured: dict[str, list[Record]] = {contender.name: [] for contender in scenario.contenders}

    def take(record: Record) -> None:
        if record.status != OK:
            raise LabError(
                f"{record.contender}: {record.error}",
                "a run that succeeds",
                "read the logs in the run's folder",
            )
        if record.control:
            return
        records = measured[record.contender]
        records.append(record)
        for row in rows_of(records, scenario) if len(records) == scenario.repetitions else []:
            on_row(row)

    return Sweep(scenario, await Runner(scenario, out, on_phase=on_phase, on_record=take).run())


async def run_all(
    scenarios: Sequence[Scenario],
    out: Path,
    on_phase: Callable[[str], None] = lambda _: None,
    on_row: Callable[[Row], None] = lambda _: None,
    on_sweep: Callable[[Sweep], None] = lambda _: None,
) -> list[Sweep]:
    """Measure one scenario after the other, each into its own folder. Raises the errors of `run`."""
    sweeps = []
    for scenario in scenarios:
        folder = out / re.sub(r"[^\w.-]+", "-", scenario.name)
        sweeps.append(await run(scenario, folder, on_phase, on_row))
        on_sweep(sweeps[-1])
    return sweeps


def rows_of(records: Sequence[Record], scenario: Scenario) -> list[Row]:
    """Return the results of a contender's runs, one row per size."""
    (contender,) = (each for each in scenario.contenders if each.name == records[0].contender)
    planes = [scenario.network.plane(name) for name in scenario.planes_of(contender)]
    by_size = zip(*(record.samples for record in records), strict=True)
    return [_row(records, samples, scenario, planes) for samples in by_size]


def _row(
    records: Sequence[Record], samples: Sequence[Sample], scenario: Scenario, planes: Sequence[Plane]
) -> Row:
    ranks, size = len(scenario.network.hosts), samples[0].size_bytes
    seconds = [time_us / 1e6 for sample in samples for time_us in sample.times_us]
    shares = [record.shares.get(str(size), {}) for record in records]
    return Row(
        contender=records[0].contender,
        bytes=size,
        work=scenario.workload,
        seconds=seconds,
        wrong=sum(sample.wrong for sample in samples),
        ranks=ranks,
        limit_bps=sum_of_limits(planes, scenario.workload.collective),
        shares={rail: sum(each[rail] for each in shares) / len(shares) for rail in shares[0]},
        cpu_s=sum(sample.cpu_s for sample in samples) / ranks / len(seconds),
        memory_bytes=max(sample.memory_bytes for sample in samples),
    )


def sum_of_limits(planes: Sequence[Plane], collective: str = "all_reduce") -> float:
    """Return the rate that the links of all planes together allow; 0 if a plane is unshaped."""
    if not all(plane.rate_bps for plane in planes):
        return 0.0
    return sum(limits.over_hosts(plane, collective, plane.kind) for plane in planes)


def _with_plane(scenario: Scenario, kind: str) -> Scenario:
    if any(plane.kind == kind for plane in scenario.network.planes):
        return scenario
    if scenario.network.name != "planes":
        raise OptionError(
            f"topology {scenario.network.name!r} has no {kind} plane",
            "one, on which the contender runs",
            f"add {kind} to the rails",
        )
    rates = [plane.rate_bps for plane in scenario.network.planes]
    return replace(scenario, rails=(*scenario.rails, kind), rates=(*rates, rates[0]))
