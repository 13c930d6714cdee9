# SPDX-License-Identifier: Apache-2.0
"""The benchmark from start to end: a lab, one job per set of rails in it, and baselines on the same hosts."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from railweave._native.collectives import Collective
from railweave.experiments import statistics
from railweave.experiments.allreduce.loop import Measurement
from railweave.experiments.errors import OptionError
from railweave.experiments.hosts import JobOptions, module_command, require_peers, start_job
from railweave.experiments.messages import RailCounts, read
from railweave.experiments.problem import COLLECTIVES, DTYPES, ITEM, LANES, OPS, SHARDED
from railweave.hosts.limits import limit_bps, ring_volume
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Plane, Topology
from railweave.topologies.planes import planes

BASELINES = ("gloo",)


@dataclass(frozen=True)
class BenchOptions:
    """One benchmark."""

    topology: Topology
    measurement: Measurement
    out: Path
    rails: Sequence[str]  # planes that railweave uses; a further one may be there for a baseline
    switch_target: str = "embedded"
    shares: Mapping[str, float] | None = None
    loss: Mapping[str, float] = field(default_factory=dict)  # by plane
    impair: str = ""  # impairment of every link, as for `railweave switch --impair`
    seed: int = 1  # of the impairments
    each_alone: bool = False  # measure every rail alone before all together
    baselines: Sequence[str] = ()
    baseline_plane: str = ""


@dataclass(frozen=True)
class Row:
    """One size on one set of rails."""

    rails: Sequence[str]  # "gloo" for that baseline
    bytes: int
    dtype: str
    op: str
    seconds: Sequence[
        float
    ]  # of each run: mean of the ranks, as nccl-tests count, or a broadcast's last rank
    wrong: int  # elements, over all runs and ranks; -1 where nothing was checked
    ranks: int
    limit_bps: float  # what the links allow in all, 0 if unshaped
    shares: Mapping[str, float]
    collective: str = "all_reduce"
    root: int = -1  # of a broadcast

    @property
    def count(self) -> int:
        """Return the elements of the tensor, or of one shard, as nccl-tests count them."""
        return self.bytes // ITEM // (self.ranks if self.collective in SHARDED else 1)

    @property
    def median_s(self) -> float:
        """Return the median time of a run."""
        return statistics.median(self.seconds)

    @property
    def p99_s(self) -> float:
        """Return the 99th percentile; with fewer than 100 runs, the slowest."""
        return statistics.p99(self.seconds)

    @property
    def algbw_bps(self) -> float:
        """Return bits of the tensor per second."""
        return self.bytes * 8 / self.median_s

    @property
    def busbw_bps(self) -> float:
        """Return nccl-tests' bus bandwidth: what hosts among themselves would need of every link."""
        return self.algbw_bps * ring_volume(native(self.collective), self.ranks)

    @property
    def limit_fraction(self) -> float | None:
        """Return algbw by the links' limit; none if unshaped."""
        return self.algbw_bps / self.limit_bps if self.limit_bps else None


@dataclass(frozen=True)
class BenchResult:
    """All rows, in the order of measuring."""

    options: BenchOptions
    rows: Sequence[Row]
    versions: Mapping[str, str]  # of baselines
    # By the job's rails, and then by rail: sums over its ranks.
    counts: Mapping[tuple[str, ...], Mapping[str, RailCounts]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no element was wrong."""
        return all(row.wrong <= 0 for row in self.rows)


def check(options: BenchOptions) -> None:
    """Raise OptionError where options make no sense or do not go together."""
    measurement = options.measurement
    if measurement.dtype not in DTYPES:
        raise OptionError(f"unknown dtype {measurement.dtype!r}; dtypes are {', '.join(DTYPES)}")
    if measurement.op not in OPS:
        raise OptionError(f"unknown op {measurement.op!r}; ops are {', '.join(OPS)}")
    if measurement.collective not in COLLECTIVES:
        raise OptionError(
            f"unknown collective {measurement.collective!r}; there are {', '.join(COLLECTIVES)}"
        )
    require_peers(options.topology)
    hosts = len(options.topology.hosts)
    least = ITEM * (hosts if measurement.collective in SHARDED else 1)
    if min(measurement.sizes) < least:
        raise OptionError(
            f"--sizes: {min(measurement.sizes)} bytes are no shard for each rank; at least {least}"
        )
    if not 0 <= measurement.root < hosts:
        raise OptionError(f"--root {measurement.root}: expected a rank, 0 to {hosts - 1}")
    if measurement.iters < 1 or measurement.warmup < 0:
        raise OptionError("--iters: expected at least 1; --warmup: at least 0")
    for baseline in options.baselines:
        if baseline not in BASELINES:
            raise OptionError(f"unknown baseline {baseline!r}; baselines are {', '.join(BASELINES)}")
        if importlib.util.find_spec("torch") is None:
            raise OptionError(
                "baseline gloo needs PyTorch; install it with: make baseline, or pip install torch==2.13.0"
            )
        if measurement.op == "avg":
            raise OptionError("Gloo has no avg; measure --op sum, max or min beside it")


async def run(
    options: BenchOptions,
    on_phase: Callable[[str], None] = lambda _: None,
    on_row: Callable[[Row], None] = lambda _: None,
) -> BenchResult:
    """Run the benchmark; raises LabError and OptionError."""
    check(options)
    on_phase(
        f"making a network of {len(options.topology.hosts)} hosts and {len(options.topology.planes)} planes"
    )
    lab_options = LabOptions(
        options.out, options.switch_target, options.loss, LANES, impair=options.impair, seed=options.seed
    )
    rows: list[Row] = []
    versions: dict[str, str] = {}
    counts: dict[tuple[str, ...], dict[str, RailCounts]] = {}
    async with Lab(options.topology, lab_options) as lab:
        for job, rails in _jobs(options):
            on_phase(f"measuring {', '.join(rails)}")
            gathered = _Gathered(options, rails, on_row)
            await start_job(lab, job)
            async for line in lab.events():
                if (message := read(line.text)) is not None:
                    gathered.take(message)
            rows += gathered.rows
            versions |= gathered.versions
            counts[rails] = gathered.counts
        on_phase("taking the network down")
    return BenchResult(options, rows, versions, counts)


def _jobs(options: BenchOptions) -> list[tuple[JobOptions, tuple[str, ...]]]:
    """Return what runs after one another, and on which rails."""
    arguments = options.measurement.arguments()
    worker = module_command("railweave.experiments.allreduce.worker", *arguments)
    alone: list[tuple[str, ...]] = (
        [(rail,) for rail in options.rails] if options.each_alone and len(options.rails) > 1 else []
    )
    jobs: list[tuple[JobOptions, tuple[str, ...]]] = [
        (JobOptions("bench-" + rails[0], worker, planes=rails, name=rails[0]), rails) for rails in alone
    ]
    together = tuple(options.rails)
    jobs.append((JobOptions("bench", worker, options.shares, together, name="all"), together))
    for baseline in options.baselines:
        command = module_command(f"railweave.experiments.allreduce.{baseline}", *arguments)
        job = JobOptions(baseline, command, planes=(options.baseline_plane,), name=baseline)
        jobs.append((job, (baseline,)))
    return jobs


class _Gathered:
    """Joins the ranks' rows of one job."""

    def __init__(self, options: BenchOptions, rails: tuple[str, ...], on_row: Callable[[Row], None]) -> None:
        self._options = options
        self._rails = rails
        self._on_row = on_row
        self._waiting: dict[int, list[dict[str, Any]]] = {}
        self.rows: list[Row] = []
        self.versions: dict[str, str] = {}
        self.counts: dict[str, RailCounts] = {}

    def take(self, message: dict[str, Any]) -> None:
        """Take one message of one rank."""
        if "version" in message:
            self.versions[self._rails[0]] = message["version"]
        for rail, values in message.get("rails", {}).items():
            self.counts[rail] = self.counts.get(rail, RailCounts()) + RailCounts(**values)
        if message["event"] != "row":
            return
        arrived = self._waiting.setdefault(message["bytes"], [])
        arrived.append(message)
        if len(arrived) == len(self._options.topology.hosts):
            self.rows.append(self._row(self._waiting.pop(message["bytes"])))
            self._on_row(self.rows[-1])

    def _row(self, messages: list[dict[str, Any]]) -> Row:
        measurement = self._options.measurement
        payload: dict[str, int] = {rail: 0 for rail in self._rails if rail not in BASELINES}
        for message in messages:
            for rail, count in message.get("payload", {}).items():
                payload[rail] += count
        total = sum(payload.values())
        ranks = len(messages)
        of_ranks = np.max if measurement.meets else np.mean
        return Row(
            rails=self._rails,
            bytes=messages[0]["bytes"],
            dtype=measurement.dtype,
            op=measurement.op,
            seconds=[float(s) for s in of_ranks([message["seconds"] for message in messages], axis=0)],
            wrong=sum(message["wrong"] for message in messages) if measurement.check else -1,
            ranks=ranks,
            limit_bps=sum_of_limits(self._planes(), ranks, measurement.collective),
            shares={rail: count / total for rail, count in payload.items()} if total else {},
            collective=measurement.collective,
            root=measurement.root if measurement.collective == "broadcast" else -1,
        )

    def _planes(self) -> list[Plane]:
        names = [self._options.baseline_plane if rail in BASELINES else rail for rail in self._rails]
        return [self._options.topology.plane(name) for name in names]


def native(collective: str) -> Collective:
    """Return the collective of this name."""
    return Collective[collective.upper()]


def sum_of_limits(planes: Sequence[Plane], ranks: int, collective: str = "all_reduce") -> float:
    """Return what the links of all planes allow together; 0 if one is unshaped, or there is one rank."""
    if ranks < 2 or any(plane.rate_bps == 0 for plane in planes):
        return 0.0
    kind = native(collective)
    return sum(limit_bps(plane.kind, plane.rate_bps, ranks, LANES, kind) for plane in planes)


def with_baseline_plane(topology: Topology) -> tuple[Topology, str]:
    """Return a topology with a tcp plane for the baseline, and its name; adds one where there is none."""
    for plane in topology.planes:
        if plane.kind == "tcp":
            return topology, plane.name
    if topology.name != "planes":
        raise OptionError(f"topology {topology.name!r} has no tcp plane for a baseline to run on")
    kinds = [plane.kind for plane in topology.planes]
    rates = [plane.rate_bps for plane in topology.planes]
    return planes(len(topology.hosts), [*kinds, "tcp"], [*rates, rates[0]]), "tcp"
