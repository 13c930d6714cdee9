# SPDX-License-Identifier: Apache-2.0
"""The parts of `railweave bench striping`: scenarios that compare rails, and claims on their records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from railweave.experiments.allreduce.run import sum_of_limits, with_contenders
from railweave.experiments.claims import Claim
from railweave.experiments.errors import OptionError
from railweave.experiments.figures.panels import Curve, Curves, Panel, Times
from railweave.experiments.scenario import Scenario, Workload
from railweave.experiments.striping import trace

PAIRS = (("tcp", "tcp"), ("ina", "tcp"), ("ina", "rdma"), ("tcp", "rdma"))
LEAST_RATE_BPS = 1_000_000
MOST_ROUNDS = 2  # of the parts `sizes` and `thresholds`
LONGEST_S = 0.1  # longest call of the part `thresholds`, on one link; longer calls are split in any case
PHASE_CALLS, LEAST_PHASE_S = 40, 2.0  # from one change of a rate to the next
MOST_CALLS = 100_000  # of a trace, which ends at its time limit
OVERHEAD_BYTES, OVERHEAD_WARMUP, OVERHEAD_ROUNDS = 1024, 300, 5
OVERHEAD_CALLS = 128  # per block, so that each block contains at least one survey
LARGE_BYTES = 4 << 20


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    hosts: int
    threshold_hosts: Sequence[int]
    rate_bps: int
    sizes: Sequence[int]
    iters: int

    def check(self) -> None:
        """Raise OptionError for a number that is too small."""
        if self.iters < 1:
            raise OptionError(f"--iters {self.iters}", "at least 1", "correct --iters")
        if self.rate_bps < LEAST_RATE_BPS:
            raise OptionError(
                f"--rate {self.rate_bps}", "at least 1M, because splits are of shaped links", "correct --rate"
            )


@dataclass(frozen=True)
class Part:
    """Scenarios with the claims on them and the panels of their plot."""

    scenarios: Sequence[Scenario]
    claims: Sequence[Claim]
    panels: Sequence[Panel] = ()


def sizes(options: Options) -> Part:
    """Compare two equal rails, two unequal rails and three rails with each rail alone."""
    rate_bps = options.rate_bps
    scenarios = [
        _swept(options, ("tcp", "tcp"), rate_bps),
        _swept(options, ("tcp", "tcp"), rate_bps, rate_bps * 3 // 10),
        _swept(options, ("tcp", "tcp", "tcp"), rate_bps),
    ]
    claims = [claim for each in scenarios for claim in _of_a_sweep(each)]
    if max(options.sizes) >= LARGE_BYTES:
        equal, *others = scenarios
        large = {"from": LARGE_BYTES, "take": "least"}
        text = "From 4 MiB on, two rails are x times as fast as one rail"
        claims.append(_claim(text, equal, (1.90, math.inf), **_speedup(equal), **large))
        text = "From 4 MiB on, all rails reach x of the greatest possible gain"
        claims += [
            _claim(text, each, (0.95, math.inf), **_speedup(each), **large, per_limit=True) for each in others
        ]
    return Part(scenarios, claims, [Times(title=each.name, scenario=each.name) for each in scenarios])


def thresholds(options: Options) -> Part:
    """Measure the share of the second rail by size and number of hosts, for pairs of rails of all kinds."""
    short = [size for size in options.sizes if size * 8 <= LONGEST_S * options.rate_bps] or options.sizes
    scenarios = {
        pair: [
            _swept(replace(options, hosts=hosts, sizes=short), pair, options.rate_bps)
            for hosts in sorted(options.threshold_hosts)
        ]
        for pair in PAIRS
    }
    every = [each for of_pair in scenarios.values() for each in of_pair]
    claims = [claim for each in every for claim in _of_a_sweep(each)]
    grown = scenarios["ina", "tcp"]
    if len(grown) > 1:
        names = [each.name for each in grown]
        text = "The size from which calls are split grows with the hosts by a factor of x"
        ask = {"what": "growth", "of": grown[0].contenders[0].name, "scenarios": names}
        claims.append(_claim(text, grown[-1], (1.01, math.inf), **ask))
    panels = [
        Curves(
            title="+".join(pair),
            y=f"share of {pair[1]} (%)",
            curves=tuple(
                Curve(f"{each.hosts} hosts", {**_share(each), "scenario": each.name, "scale": 100})
                for each in of_pair
            ),
            limit="ratio of the links",
        )
        for pair, of_pair in scenarios.items()
    ]
    return Part(every, claims, panels)


def convergence(options: Options) -> Part:
    """Record the split of each call: from a cold start, and after two changes of a rail's rate."""
    scenarios = [_trace(options, pair) for pair in PAIRS[:2]]
    claims = []
    for each in scenarios:
        text = "The final share of the last rail is off the limit of its link by at most x"
        claims.append(_claim(text, each, (0, 0.05), what="extra", field="off"))
        for place, phase in enumerate(("a cold start", "the rate is halved", "the rate is back")):
            text = f"After {phase}, the split is within 5 % of its final value in x calls"
            claims.append(_claim(text, each, (0, 20), what="extra", field=f"phases.{place}.converged_after"))
    return Part(scenarios, claims, [trace.Shares(title=each.name, scenario=each.name) for each in scenarios])


def overhead(options: Options) -> Part:
    """Compare calls of 1 KiB on two rails with the best rail."""
    rounds = math.gcd(options.iters, OVERHEAD_ROUNDS)
    calls = options.iters // rounds * OVERHEAD_CALLS
    work = Workload((OVERHEAD_BYTES,), warmup=OVERHEAD_WARMUP, iterations=calls)
    scenarios = [_scenario(options, pair, (options.rate_bps,), work, rounds) for pair in PAIRS[:2]]
    text = f"Calls of {OVERHEAD_BYTES} bytes on two rails are x times as fast as on the best rail alone"
    expected = (1 / 1.05, math.inf)
    return Part(
        scenarios,
        [_claim(text, each, expected, **_speedup(each), block=OVERHEAD_CALLS) for each in scenarios],
    )


PARTS: dict[str, Callable[[Options], Part]] = {
    part.__name__: part for part in (sizes, thresholds, convergence, overhead)
}


def _swept(options: Options, kinds: tuple[str, ...], *rates: int) -> Scenario:
    rounds = math.gcd(options.iters, MOST_ROUNDS)
    return _scenario(
        options, kinds, rates, Workload(tuple(options.sizes), iterations=options.iters // rounds), rounds
    )


def _scenario(
    options: Options, kinds: tuple[str, ...], rates: tuple[int, ...], work: Workload, rounds: int
) -> Scenario:
    """Return a scenario that compares all rails together with each rail alone."""
    mbits = "/".join(f"{rate / 1e6:g}" for rate in rates)
    name = f"{'+'.join(kinds)}, {mbits} Mbit/s, {options.hosts} hosts"
    made = Scenario(name, (), work, hosts=options.hosts, rails=kinds, rates=rates, repetitions=rounds)
    return with_contenders(made, each_alone=True)


def _trace(options: Options, kinds: tuple[str, ...]) -> Scenario:
    """Return a scenario of three phases: a cold start, the last rail at half its rate, then at full rate."""
    size, rate_bps = max(options.sizes), options.rate_bps
    made = _scenario(options, kinds, (rate_bps,), Workload((size,)), 1)
    call_s = size * 8 / sum_of_limits(made.network.planes)
    phase_s = max(LEAST_PHASE_S, PHASE_CALLS * call_s)
    last = made.network.planes[-1].name
    return replace(
        made,
        contenders=made.contenders[:1],
        workload=Workload((size,), warmup=0, iterations=MOST_CALLS, seconds=3 * phase_s),
        faults=f"{phase_s:.3f}s: rate {rate_bps // 2} {last}; {2 * phase_s:.3f}s: repair",
    )


def _of_a_sweep(scenario: Scenario) -> Iterator[Claim]:
    text = "At the size with the least gain, all rails are x times as fast as the best rail alone"
    yield _claim(text, scenario, (0.97, math.inf), **_speedup(scenario), take="least")
    text = "The share of the second rail differs from its part of the rates of the rails alone by x"
    alone = {name: name for contender in scenario.contenders[1:] for name in contender.rails}
    yield _claim(text, scenario, (0, 0.03), **_share(scenario), off_alone=alone)


def _speedup(scenario: Scenario) -> dict[str, Any]:
    together, *alone = (contender.name for contender in scenario.contenders)
    return {"what": "speedup", "of": together, "over": alone}


def _share(scenario: Scenario) -> dict[str, Any]:
    together, second = scenario.contenders[0].name, scenario.network.planes[1].name
    return {"what": "share", "of": together, "rail": second}


def _claim(text: str, scenario: Scenario, expected: tuple[float, float], **ask: Any) -> Claim:
    told = f"{scenario.name}: {text}."
    return Claim(told, told, {"scenario": scenario.name, **ask}, expected, "")
