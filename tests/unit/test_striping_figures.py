# SPDX-License-Identifier: Apache-2.0
"""The claims of bench striping on times and shares, and the options that it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from railweave._native.collectives import Collective, DType, Method, ReduceOp, choose_method
from railweave.cli import build
from railweave.experiments.allreduce.run import Sweep
from railweave.experiments.claims import Verdict
from railweave.experiments.errors import OptionError
from railweave.experiments.records import OK, Record, Sample
from railweave.experiments.scenario import Scenario
from railweave.experiments.striping import parts, regret, run, trace
from railweave.experiments.striping.parts import PARTS, Options, Part
from railweave.experiments.striping.run import Found
from railweave.hosts.limits import limit_bps

MIB = 1 << 20
M = 10**6
KINDS = {"least gain": "least", "From 4 MiB": "large", "share": "share", "grows": "growth", "bytes": "cost"}


def chosen(part: str, **changes: Any) -> Part:
    usual = {"hosts": 4, "threshold_hosts": [2, 4], "rate_bps": 100 * M, "sizes": [1024, 8 * MIB], "iters": 3}
    options = Options(**{**usual, **changes})
    options.check()
    return PARTS[part](options)


def record(scenario: Scenario, contender: str, *samples: Sample, **values: Any) -> Record:
    return Record(
        *("key", scenario.name, contender, "railweave", 0, OK),
        samples=samples, configuration=scenario.as_json(), **values,
    )  # fmt: skip


def sample(size: int, times_us: list[float], wrong: int = 0, **values: Any) -> Sample:
    return Sample(size, tuple(times_us), len(times_us), wrong, **values)


def sweep_of(part: str, scenario: Scenario, speedups: dict[int, float], second: float = 0.5) -> Found:
    together, *alone = scenario.contenders
    one, other = (plane.name for plane in scenario.network.planes[:2])
    both = {one: 1 - second, other: second}
    calls = [sample(size, [1e6 / s, 1e6 / s, 9e6 / s]) for size, s in speedups.items()]
    shares = {str(size): both if speedup > 1 else {one: 1.0} for size, speedup in speedups.items()}
    records = [record(scenario, together.name, *calls, shares=shares)]
    fastest = max(plane.rate_bps for plane in scenario.network.planes)
    for rail, plane in zip(alone, scenario.network.planes, strict=True):
        single = {str(size): {rail.name: 1.0} for size in speedups}
        call_us = 1e6 * fastest / plane.rate_bps
        usual = [sample(size, [call_us, call_us, 9 * call_us]) for size in speedups]
        records.append(record(scenario, rail.name, *usual, shares=single))
    return Found(part, Sweep(scenario, records))


def judged(name: str, part: Part, found: list[Found]) -> dict[str, list[Verdict]]:
    """Return the verdicts on measured claims, by kind."""
    by_kind: dict[str, list[Verdict]] = {}
    for verdict in run.verdicts({name: part}, found):
        kind = next((kind for words, kind in KINDS.items() if words in verdict.claim.text), "other")
        if verdict.measured:
            by_kind.setdefault(kind, []).append(verdict)
    return by_kind


def test_parts_have_scenarios() -> None:
    names = [scenario.name for scenario in chosen("sizes").scenarios]
    assert names == [
        "tcp+tcp, 100 Mbit/s, 4 hosts",
        "tcp+tcp, 100/30 Mbit/s, 4 hosts",
        "tcp+tcp+tcp, 100 Mbit/s, 4 hosts",
    ]
    unequal = chosen("sizes").scenarios[1]
    assert [contender.rails for contender in unequal.contenders] == [("tcp0", "tcp1"), ("tcp0",), ("tcp1",)]
    pairs = chosen("thresholds").scenarios
    assert len(pairs) == 8
    assert pairs[0].workload.sizes == (1024,)  # 8 MiB take a link 0.7 s
    assert chosen("thresholds", sizes=[8 * MIB]).scenarios[0].workload.sizes == (8 * MIB,)
    traced = chosen("convergence").scenarios[1]
    assert traced.faults == "17.106s: rate 50000000 tcp; 34.213s: repair"  # 40 calls at the links' limits
    assert (traced.workload.warmup, traced.workload.seconds) == (0, pytest.approx(3 * 17.1064, abs=1e-2))
    assert [contender.name for contender in traced.contenders] == ["ina+tcp"]


@pytest.mark.parametrize("part", PARTS)
def test_scenarios_and_claims_are_valid(part: str) -> None:
    made = chosen(part)
    for scenario in made.scenarios:
        scenario.check()
    for claim in made.claims:
        claim.check()
        assert claim.planned([scenario.name for scenario in made.scenarios])
    assert len({claim.id for claim in made.claims}) == len(made.claims)


@pytest.mark.parametrize(("iters", "rounds"), [(20, 5), (3, 1)])
def test_all_calls_are_made_in_whole_rounds(iters: int, rounds: int) -> None:
    small, _ = chosen("overhead", iters=iters).scenarios
    assert small.repetitions == rounds
    assert small.repetitions * small.workload.iterations == iters * parts.OVERHEAD_CALLS
    sweep = chosen("sizes", iters=iters).scenarios[0]
    assert sweep.repetitions * sweep.workload.iterations == iters


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("sizes", {"hosts": 1}, "at least 2"),
        ("thresholds", {"threshold_hosts": [2, 1]}, "at least 2"),
        ("sizes", {"iters": 0}, "--iters 0"),
        ("sizes", {"rate_bps": 0}, "--rate 0"),
    ],
)
def test_options_that_make_no_sense(part: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        chosen(part, **changes)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--threshold-hosts", "two", "--threshold-hosts 'two': expected numbers"),
        ("--parts", "speed", "part 'speed': expected one of sizes, thresholds"),
    ],
)
def test_wrong_arguments_give_one_line(option: str, value: str, words: str) -> None:
    done = CliRunner().invoke(build("bench"), ["bench", "striping", option, value])
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("speedups", "second", "good"),
    [({1024: 0.98, MIB: 1.8, 8 * MIB: 1.95}, 0.5, True), ({1024: 0.9, 8 * MIB: 1.5}, 0.4, False)],
)
def test_a_sweep_says_what_two_rails_bring(speedups: dict[int, float], second: float, good: bool) -> None:
    part = chosen("sizes")
    found = sweep_of("sizes", part.scenarios[0], speedups, second)
    verdicts = judged("sizes", part, [found])
    values = {kind: of[0].measured.value for kind, of in verdicts.items() if of[0].measured}
    assert values == {
        "least": pytest.approx(min(speedups.values())),
        "large": pytest.approx(speedups[8 * MIB]),
        "share": pytest.approx(abs(second - 0.5)),
    }
    assert [run.holds(each) for of in verdicts.values() for each in of] == [good] * 3
    assert len(found.lines()) == 2 + 4 * len(speedups)  # two rails, each rail alone, and the comparison


def test_unequal_rails_are_compared_with_their_links() -> None:
    part = chosen("sizes")
    found = sweep_of("sizes", part.scenarios[1], {8 * MIB: 1.2}, second=3 / 13)
    verdicts = judged("sizes", part, [found])
    (large,), (share,) = verdicts["large"], verdicts["share"]
    assert large.measured is not None
    assert (large.measured.value, run.holds(large)) == (pytest.approx(1.2 / 1.3), False)
    assert run.holds(share)


def test_shares_are_compared_with_the_rates_of_the_rails_alone() -> None:
    part = chosen("sizes")
    scenario = part.scenarios[0]
    *others, second = sweep_of("sizes", scenario, {8 * MIB: 1.4}, second=1 / 3).sweep.records
    (at_full_rate,) = second.samples
    half = replace(at_full_rate, times_us=tuple(2 * us for us in at_full_rate.times_us))
    found = Found("sizes", Sweep(scenario, [*others, replace(second, samples=(half,))]))
    (share,) = judged("sizes", part, [found])["share"]
    assert share.measured is not None
    assert share.measured.value == pytest.approx(0)


@pytest.mark.parametrize(("first", "second", "ok"), [(1024, 8 * MIB, True), (8 * MIB, 1024, False)])
def test_thresholds_grow_with_the_hosts(first: int, second: int, ok: bool) -> None:
    part, found = chosen("thresholds"), []
    for scenario in part.scenarios:
        if scenario.rails == ("ina", "tcp"):
            least = first if scenario.hosts == 2 else second
            speedups = {size: 1.5 if size >= least else 1.0 for size in (1024, 8 * MIB)}
            found.append(sweep_of("thresholds", scenario, speedups))
    (growth,) = judged("thresholds", part, found)["growth"]
    assert run.holds(growth) is ok


def trace_of(shares: list[float], changes: tuple[float, ...] = (39.5, 79.5)) -> Record:
    """Return a trace of calls of one second each."""
    size, starts = 8 * MIB, tuple(map(float, range(len(shares))))
    carried = tuple({"tcp0": size * (1 - share), "tcp1": size * share} for share in shares)
    calls = sample(size, [1e6] * len(shares), starts_s=starts, carried=carried)
    extra = {"events": [[at_s, "rate"] for at_s in changes]}
    scenario = chosen("convergence").scenarios[0]
    together = {str(size): {"tcp0": 0.5, "tcp1": 0.5}}
    return trace.with_phases(record(scenario, "tcp0+tcp1", calls, extra=extra, shares=together), scenario)


def traced(made: Record) -> Found:
    return Found("convergence", Sweep(chosen("convergence").scenarios[0], [made]))


COLD = [0.0, 1.0, 0.0, 1.0] + [0.5] * 36
HALVED = [0.5] * 11 + [0.33] * 10 + [0.0] + [0.33] * 18  # one call tries another choice


def test_a_trace_says_after_how_many_calls_the_split_was_there() -> None:
    phases = trace_of(COLD + HALVED + [0.33] * 30 + [0.5] * 10).extra["phases"]
    assert [phase["converged_after"] for phase in phases] == [4, 11, 30]
    assert [phase["what"] for phase in phases] == ["cold start", "tcp1 at 50 Mbit/s", "tcp1 at 100 Mbit/s"]
    assert [phase["from_call"] for phase in phases] == [0, 40, 80]
    assert [phase["limit_share"] for phase in phases] == [0.5, pytest.approx(1 / 3), 0.5]


@pytest.mark.parametrize(
    ("shares", "holds"),
    [
        (COLD + HALVED + [0.33] * 30 + [0.5] * 10, [True, True, True, False]),
        (COLD + [0.0] * 40 + [0.5] * 40, [False, True, True, True]),  # a useful rail is not used again
    ],
)
def test_claims_on_a_trace(shares: list[float], holds: list[bool]) -> None:
    verdicts = run.verdicts({"convergence": chosen("convergence")}, [traced(trace_of(shares))])
    assert [run.holds(each) for each in verdicts[:4]] == holds


@pytest.mark.parametrize("changes", [(39.5,), (39.2, 39.5), (39.5, 200.0)])
def test_a_trace_without_calls_in_a_phase_is_refused(changes: tuple[float, ...]) -> None:
    with pytest.raises(OptionError, match="too slow to show a change"):
        trace_of([0.5] * 120, changes)


def test_overhead_is_of_blocks_of_calls() -> None:
    part = chosen("overhead")
    scenario = part.scenarios[0]
    blocks = {"tcp0+tcp1": [1.04, 2.08, 4.16], "tcp0": [1.0, 2.0, 4.0], "tcp1": [2.0, 3.0, 5.0]}
    records = [
        record(scenario, name, sample(1024, [us for us in of for _ in range(parts.OVERHEAD_CALLS)]))
        for name, of in blocks.items()
    ]
    (cost,) = judged("overhead", part, [Found("overhead", Sweep(scenario, records))])["cost"]
    assert cost.measured is not None
    assert (cost.measured.value, run.holds(cost)) == (pytest.approx(1 / 1.04), True)


def test_figures_are_drawn_and_json_is_json(tmp_path: Path) -> None:
    made = {name: chosen(name) for name in PARTS if name != "overhead"}
    speedups = {1024: 1.0, 8 * MIB: 1.9}
    found = [
        sweep_of(name, scenario, speedups)
        for name in ("sizes", "thresholds")
        for scenario in made[name].scenarios
    ]
    found.append(traced(trace_of([0.5] * 120)))
    drawn = run.draw(made, found, tmp_path / "s.png")
    assert [path.name for path in drawn] == ["s-sizes.png", "s-thresholds.png", "s-convergence.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    told = json.loads(json.dumps(run.as_json(found, run.verdicts(made, found))))
    assert told["ok"]
    assert [row["part"] for row in told["rows"]] == ["sizes"] * 3 + ["thresholds"] * 8 + ["convergence"]
    assert len(told["claims"]) == sum(len(part.claims) for part in made.values())


# ------------------------------------------------------------ what learning costs


def test_the_best_split_is_known() -> None:
    world = regret.World(("tcp", "tcp"))
    rails = world.rails()
    kind = (Collective.ALL_REDUCE, DType.FLOAT32, ReduceOp.SUM, 8 * MIB)
    half_s = rails[0].time_s(16 * MIB, True)
    assert regret.best_s(rails, world.hosts, kind) == pytest.approx(half_s, rel=1e-3)
    only = (Collective.ALL_REDUCE, DType.FLOAT32, ReduceOp.SUM, 1)
    assert regret.best_s(rails, world.hosts, only) == pytest.approx(rails[0].time_s(4, False))


def test_rails_take_the_steps_of_the_native_algorithms() -> None:
    world = regret.World(("tcp",), hosts=4)
    (rail,) = world.rails()
    rounds = {Method.RECURSIVE_DOUBLING: (2, 2.0), Method.BRUCK: (4, 1.5), Method.RING: (6, 1.5)}
    for size in (4, 2 << 10, 1 << 20):
        steps, volume = rounds.pop(choose_method(Collective.ALL_REDUCE, size, 4, world.rate_bps))
        limit = rail.used * limit_bps("tcp", world.rate_bps, 4) / 8  # the limit of a ring
        expected_s = steps * rail.a_s + volume / 1.5 * size / limit
        assert rail.time_s(size, False) == pytest.approx(expected_s, rel=0.01)
    assert not rounds


@pytest.mark.parametrize("workload", regret.WORKLOADS)
def test_learning_costs_little(workload: str) -> None:
    found = regret.replay(regret.World(("ina", "tcp", "rdma")), workload)
    assert [run.holds(each) for each in run.verdicts({}, [], [found])] == [True] * 3, str(found)
    assert run.as_json([], [], [found])["rows"][0]["workload"] == workload


def test_what_is_learnt_dearly_is_no_claim_kept() -> None:
    dear = regret.Regret(regret.World(("tcp", "tcp")), "soak", (0.11, 0.031), 1.3, 5)
    assert [run.holds(each) for each in run.verdicts({}, [], [dear])] == [False] * 3
