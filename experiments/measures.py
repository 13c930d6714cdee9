# SPDX-License-Identifier: Apache-2.0
"""Numbers that claims and plots read from records: times, ratios, shares and limits, one value per round."""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from railweave.experiments import statistics
from railweave.experiments.contenders import Contender
from railweave.experiments.errors import OptionError
from railweave.experiments.records import CPU, OK, Record
from railweave.experiments.scenario import Scenario
from railweave.topologies.values import build

SPLIT = 0.995  # a call with a greater share on one rail rides that rail alone


class NotMeasured(Exception):
    """The numbers of a claim are missing. The message says why."""


@dataclass(frozen=True)
class Measured:
    """Hold a number with the confidence interval of its median over rounds."""

    value: float
    low: float
    high: float
    rounds: int
    where: str = ""  # the size that gave it, or the spread
    cpu_bound: int = 0  # number of its runs in which the CPU, not the links, was the bottleneck

    @classmethod
    def of(cls, values: Sequence[float], where: str = "", cpu_bound: int = 0) -> Measured:
        """Return the median and interval of `values`, one value per round."""
        low, high = statistics.interval(values)
        return cls(statistics.median(values), low, high, len(values), where, cpu_bound)


@dataclass(frozen=True)
class Runs:
    """Hold the records of one figure, by the names of its scenarios and contenders."""

    records: Sequence[Record]

    @cached_property
    def kept(self) -> dict[str, list[Record]]:
        """Return the good runs by scenario, without control runs and runs that did not complete."""
        kept: dict[str, list[Record]] = {}
        for record in self.records:
            if record.status == OK and not record.control:
                kept.setdefault(record.name, []).append(record)
        return kept

    @cached_property
    def scenarios(self) -> dict[str, Scenario]:
        """Return the scenarios with good runs, without those of experiments that have no contenders."""
        first = {name: runs[0].configuration for name, runs in self.kept.items()}
        return {
            name: build(Scenario, values, name) for name, values in first.items() if "contenders" in values
        }

    def incomplete(self) -> dict[str, str]:
        """Return the number of incomplete runs and the last error, by `contender, scenario`."""
        every = Counter((record.contender, record.name) for record in self.records if not record.control)
        bad = [record for record in self.records if record.status != OK and not record.control]
        lost = Counter((record.contender, record.name) for record in bad)
        return {
            ", ".join(who): f"{lost[who]} of {every[who]} runs {record.status}: {record.error}"
            for record in bad
            for who in [(record.contender, record.name)]
        }

    def of(self, scenario: str, contender: str) -> list[Record]:
        """Return the good runs, by round. Raise NotMeasured if no run is good."""
        runs = [record for record in self.kept.get(scenario, ()) if record.contender == contender]
        if not runs:
            why = self.incomplete().get(f"{contender}, {scenario}", "not run yet")
            raise NotMeasured(f"no run of {contender} in {scenario}: {why}")
        return sorted(runs, key=lambda record: record.round)

    def contenders(self, scenario: str) -> list[str]:
        """Return the contenders with good runs, in the scenario's order."""
        have = {record.contender for record in self.kept.get(scenario, ())}
        return [each.name for each in self.scenarios[scenario].contenders if each.name in have]

    def sizes(self, scenario: str, contender: str) -> list[int]:
        """Return the sizes that were run, in bytes."""
        return sorted({sample.size_bytes for run in self.of(scenario, contender) for sample in run.samples})

    def call_us(self, scenario: str, contender: str, size: int, ask: Mapping[str, Any]) -> dict[int, float]:
        """Return the time of a call, by round: the `statistic` of all calls, by default their median.

        With `block`, a number of calls, the statistic is of the mean times of blocks.
        """
        statistic, block = statistics.BY_NAME[ask.get("statistic", "median")], ask.get("block", 1)
        return {
            run.round: statistic(statistics.block_means(sample.times_us, block))
            for run in self.of(scenario, contender)
            if (sample := run.sample(size)) is not None
        }

    def times_us(self, scenario: str, contender: str, size: int) -> list[float]:
        """Return the times of all calls of all rounds."""
        samples = [run.sample(size) for run in self.of(scenario, contender)]
        return [time for sample in samples if sample is not None for time in sample.times_us]

    def ratios(
        self, scenario: str, of: str, over: Iterable[str], size: int, ask: Mapping[str, Any]
    ) -> list[float]:
        """Return the speedup of `of` over the fastest of `over` in the same round, by round."""
        fast = self.call_us(scenario, of, size, ask)
        others = [self.call_us(scenario, other, size, ask) for other in over]
        common = sorted(set(fast).intersection(*others))
        if not common:
            raise NotMeasured(f"{of} and {', '.join(over)} have no round in common in {scenario}")
        return statistics.ratios(
            [min(other[place] for other in others) for place in common], [fast[place] for place in common]
        )

    def shares(self, scenario: str, contender: str, size: int, rail: str) -> list[float]:
        """Return a rail's share of calls of this size, by round."""
        runs = self.of(scenario, contender)
        return [run.shares[str(size)].get(rail, 0.0) for run in runs if str(size) in run.shares]

    def limits_bps(self, scenario: str, contender: str) -> dict[str, float]:
        """Return the rate that the links allow a contender, by plane: tensor bits per second."""
        at = self.scenarios.get(scenario)
        if at is None:
            raise NotMeasured(f"no run in {scenario} is complete")
        for each in at.contenders:
            if each.name == contender:
                return limits_bps(at, each)
        raise NotMeasured(f"{scenario} has no contender {contender}")

    def cpu_bound(self, scenario: str, *contenders: str) -> int:
        """Return the number of runs in which the CPU was the bottleneck."""
        return sum(run.bottleneck == CPU for name in contenders for run in self.of(scenario, name))


def limits_bps(scenario: Scenario, contender: Contender) -> dict[str, float]:
    """Return the rate that the links allow a contender, by plane. It is 0 if links are unshaped."""
    network, implementation = scenario.network, contender.implementation()
    return {
        name: implementation.limit_bps(network.plane(name), scenario.workload.collective)
        for name in scenario.planes_of(contender)
    }


# ------------------------------------------------------------ measures of claims


def speedup(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure the speedup of `of` over the fastest of `over`.

    With `limit`, return the ratio of the rates that the links allow. With `per_limit`, divide by this ratio.
    """
    scenario, of, over = ask["scenario"], ask["of"], list(ask["over"])
    scale = 1.0
    if ask.get("per_limit") or ask.get("limit"):
        scale = _limit_bps(runs, scenario, of) / max(_limit_bps(runs, scenario, name) for name in over)
    if ask.get("limit"):
        return Measured.of([scale])
    return _over_sizes(
        runs,
        ask,
        lambda size: [ratio / scale for ratio in runs.ratios(scenario, of, over, size, ask)],
        runs.cpu_bound(scenario, of, *over),
    )


def time(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure the time of a call or of a training step in ms, times `scale`.

    With `limit`, return the time that the links allow.
    """
    scale = ask.get("scale", 1) / 1e3
    return _of_calls(runs, ask, lambda _, us: scale * us)


def rate(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure the throughput in Mbit/s of tensor. With `limit`, return the rate that the links allow."""
    return _of_calls(runs, ask, lambda size, us: 8 * size / us)


def utilisation(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure the part of the rate allowed by the links that a contender reaches."""
    limit = _limit_bps(runs, ask["scenario"], ask["of"])
    return _of_calls(runs, ask, lambda size, us: size * 8e6 / us / limit)


def share(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure a rail's share, times `scale`.

    With `limit`, return the rail's part of the rates that the links allow. With `off_limit`, measure the
    distance from this part. With `off_alone`, contenders by rail, measure the distance from the rail's part
    of the rates that they reach alone.
    """
    scenario, of, rail, scale = ask["scenario"], ask["of"], ask["rail"], ask.get("scale", 1)
    limit = runs.limits_bps(scenario, of)[rail] / _limit_bps(runs, scenario, of)
    if ask.get("limit"):
        return Measured.of([scale * limit])

    def aim(size: int) -> float:
        if not (alone := ask.get("off_alone")):
            return limit if ask.get("off_limit") else 0.0
        rates = {
            name: 1 / statistics.median(list(runs.call_us(scenario, who, size, ask).values()))
            for name, who in alone.items()
        }
        return rates[rail] / sum(rates.values())

    def at(size: int) -> list[float]:
        return [scale * abs(share - aim(size)) for share in runs.shares(scenario, of, size, rail)]

    return _over_sizes(runs, ask, at, runs.cpu_bound(scenario, of))


def threshold(shares: Mapping[int, Mapping[str, float]]) -> int:
    """Return the least size in bytes from which on calls of all sizes are split.

    It is twice the largest size if calls of the largest size are not split. `shares` maps sizes to the shares
    of rails.
    """
    found = 2 * max(shares)
    for size in sorted(shares, reverse=True):
        if max(shares[size].values()) >= SPLIT:
            break
        found = size
    return found


def growth(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure the ratio of the last scenario's threshold to the first one's.

    It is 0 if the threshold falls from one scenario to the next.
    """
    found = [
        [threshold({int(size): of for size, of in run.shares.items()}) for run in runs.of(name, ask["of"])]
        for name in ask["scenarios"]
    ]
    medians = [statistics.median(each) for each in found]
    falls = any(later < before for before, later in pairwise(medians))
    ratios = [last / first for first, last in zip(found[0], found[-1], strict=False)]
    where = " → ".join(f"{median / 1024:g} KiB" for median in medians)
    return Measured.of([0.0] if falls else ratios, where)


def extra(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure an extra field of records: `take` of `field`, over the scenarios of a name or pattern.

    `per` names a field to divide by. `low` and `high` name fields that are the ends of the interval.
    """
    found = [record for name in fnmatch.filter(runs.kept, ask["scenario"]) for record in runs.kept[name]]
    values = [value for record in found if (value := _value(record.extra, ask)) is not None]
    if len(values) < len(found) or not found:
        all_lost, pattern = runs.incomplete().items(), f"*, {ask['scenario']}"
        lost = [why for who, why in all_lost if fnmatch.fnmatch(who, pattern)]
        counts = f"{len(values)} of {len(found)} runs of {ask['scenario']} have {ask['field']}"
        raise NotMeasured("; ".join([counts, *lost]))
    values = [value * ask.get("scale", 1) for value in values]
    if "low" in ask:
        low, high = ([_field(record.extra, ask[end]) for record in found] for end in ("low", "high"))
        return Measured(statistics.median(values), min(low), max(high), len(values))
    if ask.get("take", "median") == "median":
        return Measured.of(values)
    value = float(_TAKE[ask["take"]](values))
    spread = f"{min(values):.3g} to {max(values):.3g}" if min(values) < max(values) else ""
    return Measured(value, value, value, len(values), spread)


def _value(extra: Mapping[str, Any], ask: Mapping[str, Any]) -> Any:
    """Return `field`, divided by `per` if there is one. Return None if a field is missing."""
    value, below = _field(extra, ask["field"]), _field(extra, ask["per"]) if "per" in ask else 1
    return None if value is None or below is None else value / below


def _field(extra: Any, path: str) -> Any:
    """Return a field, or one in a mapping or list in it: `times.ring.8`. Return None if it is missing."""
    for part in path.split("."):
        extra = extra.get(part) if isinstance(extra, Mapping) else extra and extra[int(part)]
    return extra


def extra_ratio(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure the ratio of an extra field's median in `of` to its median in `over`."""
    above, below = (extra(runs, {"scenario": ask[part], "field": ask["field"]}) for part in ("of", "over"))
    return Measured(
        above.value / below.value,
        above.low / below.high,
        above.high / below.low,
        min(above.rounds, below.rounds),
    )


def slowdown(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure the ratio of times of the largest calls: the last of several scenarios to the first.

    With `take = "greatest"`, measure the slowest scenario to the fastest.
    """
    names, of = ask["scenarios"], ask["of"]
    times_us = [runs.call_us(name, of, max(runs.sizes(name, of)), ask) for name in names]
    rounds = sorted(set(times_us[0]).intersection(*times_us))
    if not rounds:
        raise NotMeasured(f"{', '.join(names)} have no round of {of} in common")
    times = [[by_round[place] for by_round in times_us] for place in rounds]
    if ask.get("take") == "greatest":
        times = [[min(each), max(each)] for each in times]
    cpu_bound = sum(runs.cpu_bound(name, of) for name in names)
    return Measured.of([each[-1] / each[0] for each in times], cpu_bound=cpu_bound)


def counted(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure the ratio of two counters of a rail, `field` to `per`, times `scale`.

    The counters are sums over all ranks.
    """
    found = [run.counters[ask["rail"]] for run in runs.of(ask["scenario"], ask["of"])]
    return Measured.of([ask["scale"] * counts[ask["field"]] / counts[ask["per"]] for counts in found])


def cpu(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure the CPU time of a `part` (hosts or switches) per 10^9 bytes that `of` has reduced."""
    every = [record for records in runs.kept.values() for record in records if record.contender == ask["of"]]
    costs = [record.cpu.cpu_s_per_gb for record in every if record.cpu]
    if found := [cost[ask["part"]] for cost in costs if ask["part"] in cost]:
        return Measured.of(found)
    raise NotMeasured(f"no run of {ask['of']} has a CPU time of the {ask['part']}")


def wrong(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure the number of wrong elements, over all runs of the figure."""
    every = [record for records in runs.kept.values() for record in records]
    if not every:
        raise NotMeasured("no run is complete")
    count = float(sum(record.wrong for record in every))
    results = sum(sample.verified for record in every for sample in record.samples)
    return Measured(count, count, count, len(every), f"{results:,} results compared")


MEASURES: dict[str, Callable[[Runs, Mapping[str, Any]], Measured]] = {
    function.__name__: function
    for function in (
        *(speedup, time, rate, utilisation, share, growth),
        *(extra, extra_ratio, slowdown, counted, cpu, wrong),
    )
}
_TAKE: dict[str, Callable[..., Any]] = {"least": min, "greatest": max}


def check(ask: Mapping[str, Any], where: str) -> None:
    """Raise OptionError for an unknown measure or statistic."""
    for key, known, default in (("what", MEASURES, ""), ("statistic", statistics.BY_NAME, "median")):
        if ask.get(key, default) not in known:
            raise OptionError(
                f"{where}: measure {dict(ask)}", f"{key} = one of {', '.join(known)}", "correct the measure"
            )


def measure(runs: Runs, ask: Mapping[str, Any]) -> Measured:
    """Measure the number that a claim asks for.

    Raises NotMeasured if runs are missing, and OptionError for a missing or unknown argument.
    """
    chosen = MEASURES[ask["what"]]
    try:
        return chosen(runs, ask)
    except KeyError as error:
        raise OptionError(
            f"measure {dict(ask)}: {error} is missing or unknown",
            "all arguments of the measure, with names that its runs have",
            "correct the measure",
        ) from error


def _limit_bps(runs: Runs, scenario: str, of: str) -> float:
    """Return the rate that the links allow a contender. Raise NotMeasured if they are unshaped."""
    if limit := sum(runs.limits_bps(scenario, of).values()):
        return limit
    raise NotMeasured(f"the links of {scenario} have no rate")


def _of_calls(runs: Runs, ask: Mapping[str, Any], value: Callable[[int, float], float]) -> Measured:
    """Measure a value of calls, from size and µs. With `limit`, take the time that the links allow."""
    scenario, of = ask["scenario"], ask["of"]
    if ask.get("limit"):
        byte_us = 8e6 / _limit_bps(runs, scenario, of)
        compute_us = 1e6 * runs.scenarios[scenario].workload.compute_s
        return _over_sizes(runs, ask, lambda size: [value(size, compute_us + byte_us * size)], 0)

    def at(size: int) -> list[float]:
        return [value(size, us) for us in runs.call_us(scenario, of, size, ask).values()]

    return _over_sizes(runs, ask, at, runs.cpu_bound(scenario, of))


def _over_sizes(
    runs: Runs, ask: Mapping[str, Any], at: Callable[[int], list[float]], cpu_bound: int
) -> Measured:
    """Measure at each size from `from` to `to` in bytes. Take the least, the greatest or the last value."""
    low, high = ask.get("from", 0), ask.get("to", math.inf)
    sizes = [size for size in runs.sizes(ask["scenario"], ask["of"]) if low <= size <= high]
    found = [Measured.of(values, size_text(size), cpu_bound) for size in sizes if (values := at(size))]
    if not found:
        raise NotMeasured(f"no size from {low} to {high} bytes was run in {ask['scenario']}")
    if ask.get("take", "last") == "last":
        return found[-1]
    return _TAKE[ask["take"]](found, key=lambda one: one.value)  # type: ignore[no-any-return]


def size_text(size: float) -> str:
    """Return `64 KiB`."""
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:g} B"
