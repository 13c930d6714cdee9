# SPDX-License-Identifier: Apache-2.0
"""The striping experiments: scenarios that compare all rails together with each rail alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from railweave.experiments import statistics
from railweave.experiments.allreduce.run import run as run_sweep
from railweave.experiments.allreduce.run import sum_of_limits, with_contenders
from railweave.experiments.errors import OptionError
from railweave.experiments.measures import Runs, limits_bps
from railweave.experiments.records import Record
from railweave.experiments.scenario import Scenario, Workload

PARTS = ("sizes", "thresholds", "convergence", "overhead", "regret")
PAIRS = (("tcp", "tcp"), ("ina", "tcp"), ("ina", "rdma"), ("tcp", "rdma"))
LEAST_RATE_BPS = 1_000_000
MOST_ROUNDS = 2  # of the parts `sizes` and `thresholds`
LONGEST_S = 0.1  # longest call of the part `thresholds`, on one link; longer calls are split in any case
PHASE_CALLS, LEAST_PHASE_S = 40, 2.0  # from one change of a rate to the next
MOST_CALLS = 100_000  # of a trace, which ends at its time limit
OVERHEAD_BYTES, OVERHEAD_WARMUP, OVERHEAD_ROUNDS = 1024, 300, 5
OVERHEAD_CALLS = 128  # per block, so that each block contains at least one survey


@dataclass(frozen=True)
class Case:
    """One scenario of a part of the experiment."""

    part: str  # of PARTS
    scenario: Scenario

    @property
    def name(self) -> str:
        """The name for readers, such as `tcp+tcp, 100/30 Mbit/s, 4 hosts`."""
        return self.scenario.name

    @property
    def kinds(self) -> tuple[str, ...]:
        """The rails' kinds."""
        return self.scenario.rails

    @property
    def rails(self) -> tuple[str, ...]:
        """The rails' names."""
        return tuple(plane.name for plane in self.scenario.network.planes)

    @property
    def rates_bps(self) -> tuple[int, ...]:
        """The rails' rates."""
        return tuple(plane.rate_bps for plane in self.scenario.network.planes)

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return self.scenario.hosts

    def limit_shares(self) -> dict[str, float]:
        """Return each rail's share of the rate that all links together allow."""
        limits = limits_bps(self.scenario, self.scenario.contenders[0])
        return {rail: limit / sum(limits.values()) for rail, limit in limits.items()}


@dataclass(frozen=True)
class Found:
    """The records of a case."""

    case: Case
    records: Sequence[Record] = ()

    @property
    def together(self) -> str:
        """The name of the contender that has all rails."""
        return self.case.scenario.contenders[0].name

    @cached_property
    def runs(self) -> Runs:
        """The successful runs of the case."""
        return Runs(self.records)

    @property
    def sizes(self) -> list[int]:
        """The sizes in bytes."""
        return self.runs.sizes(self.case.name, self.together)

    @property
    def wrong(self) -> int:
        """The number of wrong elements."""
        return sum(record.wrong for record in self.records)

    def seconds(self, contender: str, size: int) -> list[float]:
        """Return the times of all calls of a contender."""
        return [time / 1e6 for time in self.runs.times_us(self.case.name, contender, size)]

    def shares(self, size: int) -> dict[str, float]:
        """Return each rail's share of the calls on all rails, median over rounds."""
        name, shares = self.case.name, self.runs.shares
        return {rail: statistics.median(shares(name, self.together, size, rail)) for rail in self.case.rails}


def cases(
    parts: Sequence[str],
    hosts: int,
    threshold_hosts: Sequence[int],
    rate_bps: int,
    sizes: Sequence[int],
    iters: int,
) -> list[Case]:
    """Return the scenarios of the chosen parts. The part `regret` has none.

    Raises OptionError for invalid options.
    """
    for part in parts:
        if part not in PARTS:
            raise OptionError(f"part {part!r}", f"one of {', '.join(PARTS)}", "correct the name")
    if iters < 1:
        raise OptionError(f"--iters {iters}", "at least 1", "correct --iters")
    if rate_bps < LEAST_RATE_BPS:
        raise OptionError(
            f"--rate {rate_bps}", "at least 1M, because splits are of shaped links", "correct --rate"
        )
    rounds = math.gcd(iters, MOST_ROUNDS)
    sweep = Workload(tuple(sizes), iterations=iters // rounds)
    short = [size for size in sizes if size * 8 <= LONGEST_S * rate_bps] or sizes
    made = {
        "sizes": [
            _case("sizes", kinds, rates, hosts, sweep, rounds)
            for kinds, rates in (
                (("tcp", "tcp"), (rate_bps,)),
                (("tcp", "tcp"), (rate_bps, rate_bps * 3 // 10)),
                (("tcp", "tcp", "tcp"), (rate_bps,)),
            )
        ],
        "thresholds": [
            _case("thresholds", pair, (rate_bps,), count, replace(sweep, sizes=tuple(short)), rounds)
            for pair in PAIRS
            for count in threshold_hosts
        ],
        "convergence": [_trace(pair, rate_bps, hosts, max(sizes)) for pair in PAIRS[:2]],
        "overhead": [_overhead(pair, rate_bps, hosts, iters) for pair in PAIRS[:2]],
    }
    return [case for part in PARTS if part in parts for case in made.get(part, [])]


def _case(
    part: str, kinds: tuple[str, ...], rates: tuple[int, ...], hosts: int, work: Workload, rounds: int
) -> Case:
    mbits = "/".join(f"{rate / 1e6:g}" for rate in rates)
    name = f"{'+'.join(kinds)}, {mbits} Mbit/s, {hosts} hosts"
    scenario = Scenario(name, (), work, hosts=hosts, rails=kinds, rates=rates, repetitions=rounds)
    return Case(part, with_contenders(scenario, each_alone=part != "convergence"))


def _trace(kinds: tuple[str, ...], rate_bps: int, hosts: int, size: int) -> Case:
    """Return a case of three phases: a cold start, the last rail at half its rate, then at its full rate."""
    case = _case("convergence", kinds, (rate_bps,), hosts, Workload((size,)), 1)
    call_s = size * 8 / sum_of_limits(case.scenario.network.planes, hosts)
    phase_s = max(LEAST_PHASE_S, PHASE_CALLS * call_s)
    work = Workload((size,), warmup=0, iterations=MOST_CALLS, seconds=3 * phase_s)
    faults = f"{phase_s:.3f}s: rate {rate_bps // 2} {case.rails[-1]}; {2 * phase_s:.3f}s: repair"
    return Case("convergence", replace(case.scenario, workload=work, faults=faults))


def _overhead(kinds: tuple[str, ...], rate_bps: int, hosts: int, iters: int) -> Case:
    rounds = math.gcd(iters, OVERHEAD_ROUNDS)
    calls = iters // rounds * OVERHEAD_CALLS
    work = Workload((OVERHEAD_BYTES,), warmup=OVERHEAD_WARMUP, iterations=calls)
    return _case("overhead", kinds, (rate_bps,), hosts, work, rounds)


async def run(
    chosen: Sequence[Case],
    out: Path,
    on_phase: Callable[[str], None] = lambda _: None,
    on_found: Callable[[Found], None] = lambda _: None,
) -> list[Found]:
    """Run one case after the other. Raises LabError and OptionError."""
    found = []
    for place, case in enumerate(chosen):
        prefix = f"{place + 1} of {len(chosen)}, {case.part}"

        def on_phase_of_case(text: str, prefix: str = prefix) -> None:
            on_phase(f"{prefix}: {text}")

        sweep = await run_sweep(case.scenario, out / f"{place}-{case.part}", on_phase_of_case)
        found.append(Found(case, sweep.records))
        on_found(found[-1])
    return found
