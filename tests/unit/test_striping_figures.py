# SPDX-License-Identifier: Apache-2.0
"""The results that bench striping computes from times and shares, and the options that it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from railweave._native.collectives import Collective, DType, Method, ReduceOp, choose_method
from railweave.cli import build
from railweave.experiments.errors import OptionError
from railweave.experiments.records import OK, Record, Sample
from railweave.experiments.striping import plot, regret, report, run
from railweave.experiments.striping.run import Case, Found
from railweave.hosts.limits import limit_bps

MIB = 1 << 20
M = 10**6


def chosen(part: str, **changes: Any) -> list[Case]:
    usual = {"hosts": 4, "threshold_hosts": [2, 4], "rate_bps": 100 * M, "sizes": [1024, 8 * MIB], "iters": 3}
    return run.cases([part], **{**usual, **changes})


def record(case: Case, contender: str, *samples: Sample, **values: Any) -> Record:
    scenario = case.scenario.as_json()
    return Record(
        "key", case.name, contender, "railweave", 0, OK, samples=samples, configuration=scenario, **values
    )


def sample(size: int, times_us: list[float], wrong: int = 0, **values: Any) -> Sample:
    return Sample(size, tuple(times_us), len(times_us), wrong, **values)


def sweep_of(case: Case, speedups: dict[int, float], second: float = 0.5) -> Found:
    one, other = case.rails[:2]
    both, alone = {one: 1 - second, other: second}, {one: 1.0}
    together = [sample(size, [1e6 / s, 1e6 / s, 9e6 / s]) for size, s in speedups.items()]
    shares = {str(size): both if speedup > 1 else alone for size, speedup in speedups.items()}
    records = [record(case, "+".join(case.rails), *together, shares=shares)]
    for rail in case.rails:
        records.append(record(case, rail, *[sample(size, [1e6, 1e6, 9e6]) for size in speedups]))
    return Found(case, records)


def test_parts_are_cases() -> None:
    names = [case.name for case in chosen("sizes")]
    assert names == [
        "tcp+tcp, 100 Mbit/s, 4 hosts",
        "tcp+tcp, 100/30 Mbit/s, 4 hosts",
        "tcp+tcp+tcp, 100 Mbit/s, 4 hosts",
    ]
    unequal = chosen("sizes")[1].scenario
    assert [contender.rails for contender in unequal.contenders] == [("tcp0", "tcp1"), ("tcp0",), ("tcp1",)]
    assert chosen("sizes")[1].limit_shares() == pytest.approx({"tcp0": 10 / 13, "tcp1": 3 / 13})
    assert len(chosen("thresholds")) == 8
    assert chosen("thresholds")[0].scenario.workload.sizes == (1024,)  # 8 MiB take a link 0.7 s
    assert chosen("thresholds", sizes=[8 * MIB])[0].scenario.workload.sizes == (8 * MIB,)
    trace = chosen("convergence")[1].scenario
    assert trace.faults == "17.106s: rate 50000000 tcp; 34.213s: repair"  # 40 calls at the links' limits
    assert (trace.workload.warmup, trace.workload.seconds) == (0, pytest.approx(3 * 17.1064, abs=1e-2))
    assert [contender.name for contender in trace.contenders] == ["ina+tcp"]


@pytest.mark.parametrize(("iters", "rounds"), [(20, 5), (3, 1)])
def test_all_calls_are_made_in_whole_rounds(iters: int, rounds: int) -> None:
    (small, _) = (case.scenario for case in chosen("overhead", iters=iters))
    assert small.repetitions == rounds
    assert small.repetitions * small.workload.iterations == iters * run.OVERHEAD_CALLS
    sweep = chosen("sizes", iters=iters)[0].scenario
    assert sweep.repetitions * sweep.workload.iterations == iters


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("speed", {}, "part 'speed': expected one of sizes, thresholds"),
        ("sizes", {"hosts": 1}, "at least 2"),
        ("thresholds", {"threshold_hosts": [2, 1]}, "at least 2"),
        ("sizes", {"iters": 0}, "--iters 0"),
        ("sizes", {"rate_bps": 0}, "--rate 0"),
    ],
)
def test_options_that_make_no_sense(part: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        chosen(part, **changes)


def test_wrong_arguments_give_one_line() -> None:
    done = CliRunner().invoke(build("bench"), ["bench", "striping", "--threshold-hosts", "two"])
    assert done.exit_code == 2
    assert "--threshold-hosts 'two': expected numbers" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_sweep_says_what_two_rails_bring() -> None:
    found = sweep_of(chosen("sizes")[0], {1024: 0.98, MIB: 1.8, 8 * MIB: 1.95})
    told = report.sweep(found)
    assert told["threshold_bytes"] == MIB
    assert told["second_share_at_largest"] == 0.5
    largest = told["rows"][-1]
    assert largest["speedup"] == pytest.approx(1.95)
    assert largest["of_sum"] == pytest.approx(0.975)
    assert largest["alone_us"] == {"tcp0": 1e6, "tcp1": 1e6}
    stated = {claim.claim: claim for claim in report.claims([found])}
    assert stated["speedup from 4 MiB on"].value == pytest.approx(1.95)
    assert stated["never slower than the best rail alone"].value == pytest.approx(0.98)
    assert all(claim.ok for claim in stated.values())
    assert len(report.lines(found)) == 5


def test_what_falls_short_is_no_claim_kept() -> None:
    slow = sweep_of(chosen("sizes")[0], {1024: 0.9, 8 * MIB: 1.5}, second=0.4)
    assert not any(claim.ok for claim in report.claims([slow]))
    unequal = sweep_of(chosen("sizes")[1], {8 * MIB: 1.2})
    (of_sum,) = [claim for claim in report.claims([unequal]) if "sum" in claim.claim]
    assert (of_sum.value, of_sum.ok) == (pytest.approx(0.6), False)


def test_the_threshold_is_where_every_larger_size_is_split() -> None:
    rising = sweep_of(chosen("sizes")[0], {1024: 1.5, 2048: 1.0, 4096: 1.5, 8 * MIB: 1.5})
    assert report.sweep(rising)["threshold_bytes"] == 4096
    none = sweep_of(chosen("sizes")[0], {1024: 1.5, 8 * MIB: 1.0})
    assert report.sweep(none)["threshold_bytes"] is None


@pytest.mark.parametrize(("first", "second", "ok"), [(1024, 8 * MIB, True), (8 * MIB, 1024, False)])
def test_thresholds_grow_with_the_hosts(first: int, second: int, ok: bool) -> None:
    found = []
    for case in chosen("thresholds"):
        if case.kinds == ("ina", "tcp"):
            least = first if case.hosts == 2 else second
            speedups = {size: 1.5 if size >= least else 1.0 for size in (1024, 8 * MIB)}
            found.append(sweep_of(case, speedups))
    (growth,) = [claim for claim in report.claims(found) if "grows" in claim.claim]
    assert growth.ok is ok


def trace_of(shares: list[float], changes: tuple[float, ...] = (39.5, 79.5)) -> Found:
    """Return a trace of calls of one second each."""
    size, starts = 8 * MIB, tuple(map(float, range(len(shares))))
    carried = tuple({"tcp0": size * (1 - share), "tcp1": size * share} for share in shares)
    calls = sample(size, [1e6] * len(shares), starts_s=starts, carried=carried)
    events = [[at_s, "rate"] for at_s in changes]
    case = chosen("convergence")[0]
    return Found(case, [record(case, "tcp0+tcp1", calls, extra={"events": events})])


def test_a_trace_says_after_how_many_calls_the_split_was_there() -> None:
    cold = [0.0, 1.0, 0.0, 1.0] + [0.5] * 36
    halved = [0.5] * 11 + [0.33] * 10 + [0.0] + [0.33] * 18  # one call tries another choice
    found = trace_of(cold + halved + [0.33] * 30 + [0.5] * 10)
    phases = report.trace(found)["phases"]
    assert [phase["converged_after"] for phase in phases] == [4, 11, 30]
    assert [phase["what"] for phase in phases] == ["cold start", "tcp1 at 50 Mbit/s", "tcp1 at 100 Mbit/s"]
    assert [phase["from_call"] for phase in phases] == [0, 40, 80]
    assert [phase["limit_share"] for phase in phases] == [0.5, pytest.approx(1 / 3), 0.5]
    assert [claim.ok for claim in report.claims([found])] == [True, True, True, False]
    left = trace_of(cold + [0.0] * 40 + [0.5] * 40)  # a useful rail is not used again
    assert [claim.ok for claim in report.claims([left])] == [False, True, True, True]


@pytest.mark.parametrize("changes", [(39.5,), (39.2, 39.5), (39.5, 200.0)])
def test_a_trace_without_calls_in_a_phase_is_refused(changes: tuple[float, ...]) -> None:
    with pytest.raises(OptionError, match="too slow to show a change"):
        report.trace(trace_of([0.5] * 120, changes))


def test_overhead_is_over_the_best_rail_of_the_same_block() -> None:
    case = chosen("overhead")[0]
    blocks = {"tcp0+tcp1": [1.04, 2.08, 4.16], "tcp0": [1.0, 2.0, 4.0], "tcp1": [2.0, 3.0, 5.0]}
    records = [
        record(case, name, sample(1024, [us for us in of for _ in range(run.OVERHEAD_CALLS)], name == "tcp1"))
        for name, of in blocks.items()
    ]
    told = report.overhead(Found(case, records))
    assert told["overhead"] == pytest.approx(0.04)
    assert (told["best_rail"], told["wrong"], told["blocks"]) == ("tcp0", 1, 3)


def test_figures_are_drawn_and_json_is_json(tmp_path: Path) -> None:
    found = [sweep_of(case, {1024: 1.0, 8 * MIB: 1.9}) for case in chosen("sizes") + chosen("thresholds")]
    found.append(trace_of([0.5] * 120))
    drawn = plot.draw(found, tmp_path / "s.png")
    assert [path.name for path in drawn] == ["s-sizes.png", "s-thresholds.png", "s-convergence.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    told = json.loads(json.dumps(report.as_json(found)))
    assert told["ok"]
    assert {row["part"] for row in told["rows"]} == {"sizes", "thresholds", "convergence"}


# ------------------------------------------------------------ what learning costs


def test_an_oracle_knows_the_best_split() -> None:
    world = regret.World(("tcp", "tcp"))
    rails = world.rails()
    kind = (Collective.ALL_REDUCE, DType.FLOAT32, ReduceOp.SUM, 8 * MIB)
    half_s = rails[0].time_s(16 * MIB, True)
    assert regret.Oracle(rails, world.hosts).best_s(kind) == pytest.approx(half_s, rel=1e-3)
    only = (Collective.ALL_REDUCE, DType.FLOAT32, ReduceOp.SUM, 1)
    assert regret.Oracle(rails, world.hosts).best_s(only) == pytest.approx(rails[0].time_s(4, False))


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
    claims = report.regret_claims([found])
    assert [claim.ok for claim in claims] == [True] * 3, str(found)
    assert report.as_json([], [found])["rows"][0]["workload"] == workload


def test_what_is_learnt_dearly_is_no_claim_kept() -> None:
    dear = regret.Regret(regret.World(("tcp", "tcp")), "soak", (0.11, 0.031), 1.3, 5)
    assert [claim.ok for claim in report.regret_claims([dear])] == [False] * 3
