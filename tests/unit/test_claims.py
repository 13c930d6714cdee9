# SPDX-License-Identifier: Apache-2.0
"""Verdicts on claims, computed from the records of a cost model."""

from __future__ import annotations

import math
from dataclasses import replace

import model_records
import pytest

from railweave.experiments.claims import (
    NOT_MEASURED,
    NOT_REPRODUCED,
    REPRODUCED,
    SHAPE,
    SHAPE_ONLY,
    Claim,
    Paper,
    judge,
    range_text,
)
from railweave.experiments.claims import verdict as judged
from railweave.experiments.contenders import Contender
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import figures
from railweave.experiments.measures import Measured, NotMeasured, Runs, limits_bps, measure
from railweave.experiments.problem import BOTH
from railweave.experiments.records import CPU
from railweave.experiments.scenario import Scenario

(PAIR,) = figures(["N1"])[0].plan(quick=True)
assert isinstance(PAIR, Scenario)
GAIN = {"what": "speedup", "scenario": PAIR.name, "of": "tcp+tcp", "over": ["tcp0"], "from": 1 << 20}
PAPER = Paper("1.58 to 1.90", "abstract", "R", (1.58, 1.90))
CLAIM = Claim("plateau", "gain", GAIN, (1.5, 2.05), "two links", paper=PAPER, links=True)


def runs(reached: float = 0.9, **fields: object) -> Runs:
    """Return runs in which two rails reach this part of the limit, and one rail 0.95."""
    return Runs(model_records.of_scenario(PAIR, {"tcp+tcp": reached}, **fields))


@pytest.mark.parametrize(
    ("reached", "verdict", "words"),
    [
        (0.85, REPRODUCED, ""),
        (0.95, SHAPE_ONLY, "above 1.58 to 1.9, but as expected here"),
        (0.60, NOT_REPRODUCED, "below 1.58 to 1.9"),
    ],
)
def test_the_number_decides(reached: float, verdict: str, words: str) -> None:
    found = judge(CLAIM, runs(reached))
    assert (found.verdict, found.reason) == (verdict, words)
    assert found.measured is not None
    assert found.measured.low <= found.measured.value <= found.measured.high
    assert found.measured.value == pytest.approx(2 * reached / 0.95, rel=0.05)


def test_a_shape_is_never_more_than_a_shape() -> None:
    assert judge(replace(CLAIM, kind=SHAPE), runs(0.85)).verdict == SHAPE_ONLY
    assert judge(replace(CLAIM, kind=SHAPE), runs(0.60)).verdict == NOT_REPRODUCED


def test_tolerance_widens_the_range() -> None:
    assert judge(replace(CLAIM, tolerance=0.1), runs(0.95)).verdict == REPRODUCED
    unbounded = replace(CLAIM, paper=None, expected=(1.5, math.inf))
    assert judge(unbounded, runs(0.95)).verdict == REPRODUCED


def test_where_the_cpu_was_the_bottleneck_nothing_about_links_is_reproduced() -> None:
    found = judge(CLAIM, runs(0.85, bottleneck=CPU))
    assert (found.verdict, found.reason) == (SHAPE_ONLY, "the CPU was the bottleneck in 4 of the runs")
    assert judge(replace(CLAIM, links=False), runs(0.85, bottleneck=CPU)).verdict == REPRODUCED


ABOVE, INTO = "above 1.58 to 1.9", "the interval reaches into 1.58 to 1.9"
PAST = "the interval reaches past 1.5 to 2.05"


@pytest.mark.parametrize(
    ("low", "value", "high", "verdict", "reason"),
    [
        (1.60, 1.70, 1.80, REPRODUCED, ""),
        (1.50, 1.70, 1.80, REPRODUCED, "the interval reaches past 1.58 to 1.9"),
        (1.91, 1.95, 2.00, SHAPE_ONLY, f"{ABOVE}, but as expected here"),
        (1.80, 1.95, 2.00, SHAPE_ONLY, f"{ABOVE}, but as expected here; {INTO}"),
        (
            1.91,
            1.95,
            2.10,
            SHAPE_ONLY,
            f"{ABOVE}, but as expected here; {PAST}",
        ),
        (2.10, 2.20, 2.30, NOT_REPRODUCED, ABOVE),
        (1.85, 2.20, 2.30, NOT_REPRODUCED, f"{ABOVE}; {INTO}"),
        (1.30, 1.40, 1.60, NOT_REPRODUCED, f"below 1.58 to 1.9; {INTO}"),
    ],
)
def test_an_interval_that_crosses_an_end_is_named(
    low: float, value: float, high: float, verdict: str, reason: str
) -> None:
    found = judged(CLAIM, Measured(value, low, high, rounds=4))
    assert (found.verdict, found.reason) == (verdict, reason)


def test_who_is_missing_is_named() -> None:
    lost = [
        replace(record, status="skipped", error="no PyTorch: make baseline", samples=())
        if record.contender == "tcp0"
        else record
        for record in runs().records
    ]
    found = judge(CLAIM, Runs(lost))
    assert found.verdict == NOT_MEASURED
    assert found.reason == f"no run of tcp0 in {PAIR.name}: 2 of 2 runs skipped: no PyTorch: make baseline"


def test_a_run_that_failed_is_left_out_and_named() -> None:
    first, *others = runs().records
    bad = replace(first, status="hung", error="nothing was heard of it", samples=())
    found = Runs([bad, *others])
    assert found.incomplete() == {f"tcp+tcp, {PAIR.name}": "1 of 2 runs hung: nothing was heard of it"}
    assert measure(found, GAIN).rounds == 1


def test_rounds_are_paired_and_control_runs_are_no_measurements() -> None:
    """A drift that slows a whole round changes no ratio."""
    usual = model_records.of_scenario(PAIR)
    slowed = [model_records.slower(record, 10.0) if record.round == 1 else record for record in usual]
    control = [replace(model_records.slower(record, 99.0), rate_factor=0.5) for record in usual]
    found, same = measure(Runs([*slowed, *control]), GAIN), measure(Runs(usual), GAIN)
    assert (found.value, found.low, found.rounds) == (pytest.approx(same.value), pytest.approx(same.low), 2)


def test_calls_are_compared_between_scenarios_round_by_round() -> None:
    slow = replace(PAIR, name="slow")
    times = [model_records.slower(record, 2.0 + record.round) for record in model_records.of_scenario(slow)]
    middle = model_records.of_scenario(replace(PAIR, name="middle"))
    found = Runs([*model_records.of_scenario(PAIR), *times, *middle])
    ask = {"what": "slowdown", "scenarios": [PAIR.name, "slow", "middle"], "of": "tcp0"}
    assert measure(found, ask).value == pytest.approx(1, rel=0.05)
    greatest = measure(found, {**ask, "take": "greatest"})
    assert (greatest.low, greatest.high) == (pytest.approx(2, rel=0.05), pytest.approx(3, rel=0.05))
    with pytest.raises(NotMeasured, match="no run of tcp0 in fast"):
        measure(found, {**ask, "scenarios": ["fast"]})


def test_the_mean_of_calls_counts_rare_long_calls() -> None:
    usual = model_records.of_scenario(PAIR)
    rare = [
        replace(
            record,
            samples=tuple(
                replace(sample, times_us=(*sample.times_us[1:], len(sample.times_us) * sample.times_us[0]))
                for sample in record.samples
            ),
        )
        for record in usual
    ]
    ask = {"what": "time", "scenario": PAIR.name, "of": "tcp0"}
    median, mean, p99 = (
        measure(Runs(rare), {**ask, "statistic": name}).value / measure(Runs(usual), ask).value
        for name in ("median", "mean", "p99")
    )
    assert median == pytest.approx(1, rel=0.1)
    assert mean == pytest.approx(2, rel=0.2)
    assert p99 > 3


def test_what_ranks_count_is_related_to_what_they_carried() -> None:
    counts = {"ina": {"fetched_bytes": 30.0, "payload_bytes": 400.0}}
    found = Runs(model_records.of_scenario(PAIR, counters=counts))
    ask = {"what": "counted", "scenario": PAIR.name, "of": "tcp0", "rail": "ina", "scale": 4 / 3}
    assert measure(found, {**ask, "field": "fetched_bytes", "per": "payload_bytes"}).value == 0.1


def test_the_limit_of_two_calls_at_once() -> None:
    both = replace(PAIR, rails=("ina", "tcp"), workload=replace(PAIR.workload, collective=BOTH))
    gather, reduce = (
        replace(both, workload=replace(both.workload, collective=one)) for one in BOTH.split("+")
    )
    ina, ring = Contender("ina", "railweave", ("ina",)), Contender("ring", "ring", ("tcp",))
    assert limits_bps(both, ring)["tcp"] == pytest.approx(limits_bps(gather, ring)["tcp"] / 2)
    one_shard = 1 / (3 * limits_bps(gather, ina)["ina"])  # one of the three shards that come down
    both_up = 1 / (one_shard + 1 / limits_bps(reduce, ina)["ina"])
    assert limits_bps(both, ina)["ina"] == pytest.approx(both_up)
    unshaped = replace(both, rates=(0,))
    assert (limits_bps(unshaped, ina), limits_bps(unshaped, ring)) == ({"ina": 0}, {"tcp": 0})


def test_limits_are_those_of_the_links() -> None:
    ask, limit = {"scenario": PAIR.name, "of": "tcp+tcp"}, {"limit": True}
    reached = measure(runs(), {"what": "utilisation", **ask}).value
    rate, most = (measure(runs(), {"what": "rate", **ask, **more}).value for more in ({}, limit))
    time, least = (measure(runs(), {"what": "time", **ask, **more}).value for more in ({}, limit))
    assert (rate / most, least / time) == (pytest.approx(reached), pytest.approx(reached, rel=0.01))
    assert measure(runs(), {**GAIN, **limit}).value == pytest.approx(2)
    unshaped = replace(PAIR, rates=(0,)).as_json()
    found = Runs([replace(record, configuration=unshaped) for record in runs().records])
    with pytest.raises(NotMeasured, match=r"the links of .* have no rate"):
        measure(found, {"what": "rate", **ask, **limit})


def test_a_field_of_an_experiment_may_lie_in_others() -> None:
    extra = {"times": {"ring": [3.0, 1.5]}, "low": 1.0, "high": 4.0}
    found = Runs([replace(runs().records[0], extra=extra)])
    ask = {"what": "extra", "scenario": PAIR.name, "field": "times.ring.0"}
    assert measure(found, {**ask, "per": "times.ring.1", "scale": 10}).value == 20
    spread = measure(found, {**ask, "low": "low", "high": "high"})
    assert (spread.low, spread.value, spread.high) == (1, 3, 4)
    with pytest.raises(NotMeasured, match=r"0 of 1 runs of .* have times\.tree\.0"):
        measure(found, {**ask, "field": "times.tree.0"})


def test_a_wrong_element_is_counted() -> None:
    records = model_records.of_scenario(PAIR)
    first = records[0]
    bad = replace(first, samples=(replace(first.samples[0], wrong=3), *first.samples[1:]))
    exact = Claim("exact", "wrong", {"what": "wrong"}, (0, 0), "all are compared")
    assert judge(exact, Runs(records)).verdict == REPRODUCED
    assert judge(exact, Runs([bad, *records[1:]])).reason == "above 0"


def test_the_least_of_sizes_is_that_with_the_least_median() -> None:
    every = [measure(runs(), {**GAIN, "from": size, "to": size}) for size in PAIR.workload.sizes]
    for take, best in (("least", min), ("greatest", max)):
        found = measure(runs(), {**GAIN, "from": 0, "take": take})
        assert found == best(every, key=lambda one: one.value)


def test_thresholds_that_fall_in_between_do_not_grow() -> None:
    names = [f"ina+tcp, {hosts} hosts, 100 Mbit/s" for hosts in (2, 4, 6)]
    plan = {step.name: step for step in figures(["N2"])[0].plan(quick=True) if isinstance(step, Scenario)}
    scenarios = [plan[name] for name in names]
    records = [record for scenario in scenarios for record in model_records.of_scenario(scenario)]
    ask = {"what": "growth", "of": "ina+tcp", "scenarios": names}
    assert measure(Runs(records), ask).value == 1.0
    alone = {str(size): {"ina": 1.0} for size in scenarios[1].workload.sizes}
    late = [
        replace(record, shares=alone) if record.name == scenarios[1].name else record for record in records
    ]
    assert measure(Runs(late), ask).value == 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"expected": (2.0, 1.0)}, "range"),
        ({"expected": (1.0,)}, "range"),
        ({"kind": "nice"}, "kind 'nice'"),
        ({"paper": replace(PAPER, mark="?")}, r"claim 'plateau': mark '\?': expected R or D"),
        (
            {"measure": {"what": "luck"}},
            "claim 'plateau': measure {'what': 'luck'}: expected what = one of speedup, time, rate",
        ),
        ({"measure": {**GAIN, "statistic": "p98"}}, "expected statistic = one of median, mean, p99"),
    ],
)
def test_claims_that_make_no_sense_are_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        replace(CLAIM, **change).check()  # type: ignore[arg-type]


def test_ranges_as_text() -> None:
    assert [range_text(each) for each in ((1.58, 1.9), (0.95, math.inf), (0, 200), (0, 0))] == [
        "1.58 to 1.9",
        "≥ 0.95",
        "≤ 200",
        "0",
    ]
