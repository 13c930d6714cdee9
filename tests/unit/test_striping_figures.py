# SPDX-License-Identifier: Apache-2.0
"""What bench striping makes of times and shares, and the options that it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from railweave.cli import build
from railweave.experiments.errors import OptionError
from railweave.experiments.striping import plot, report, run
from railweave.experiments.striping.run import _Gathered
from railweave.experiments.striping.values import Call, Case, Found, Row, StripingOptions
from railweave.experiments.striping.worker import Plan

MIB = 1 << 20
M = 10**6


def chosen(part: str, **changes: Any) -> list[Case]:
    usual = StripingOptions([part], 4, [2, 4], 100 * M, [1024, 8 * MIB], 3, Path())
    return run.cases(replace(usual, **changes))


def row(size: int, contender: str, seconds: float, shares: dict[str, float], wrong: int = 0) -> Row:
    return Row(size, contender, [seconds, seconds, 9 * seconds], [shares] * 3, wrong)


def sweep_of(case: Case, speedups: dict[int, float], second: float = 0.5) -> Found:
    rows = []
    for size, speedup in speedups.items():
        rows += [row(size, rail, 1.0, {rail: 1.0}) for rail in case.rails]
        one, other = case.rails[:2]
        shares = {one: 1 - second, other: second} if speedup > 1 else {one: 1.0}
        rows.append(row(size, "+".join(case.rails), 1 / speedup, shares))
    return Found(case, rows)


def test_parts_are_cases() -> None:
    names = [case.name for case in chosen("sizes")]
    assert names == [
        "tcp+tcp, 100 Mbit/s, 4 hosts",
        "tcp+tcp, 100/30 Mbit/s, 4 hosts",
        "tcp+tcp+tcp, 100 Mbit/s, 4 hosts",
    ]
    assert chosen("sizes")[1].plan.contenders == (("tcp0", "tcp1"), ("tcp0",), ("tcp1",))
    assert chosen("sizes")[1].limit_shares() == pytest.approx({"tcp0": 10 / 13, "tcp1": 3 / 13})
    assert len(chosen("thresholds")) == 8
    assert chosen("convergence")[1].changes == ((40, "tcp", 50 * M), (80, "tcp", 100 * M))
    assert {case.plan.calls for case in chosen("overhead")} == {128}


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("speed", {}, "unknown part 'speed'; parts are sizes"),
        ("sizes", {"hosts": 1}, "at least 2 hosts"),
        ("sizes", {"iters": 0}, "--iters 0"),
        ("sizes", {"rate_bps": 0}, "--rate 0"),
    ],
)
def test_options_that_make_no_sense(part: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        chosen(part, **changes)


def test_wrong_arguments_give_one_line() -> None:
    done = CliRunner().invoke(build("bench"), ["bench", "striping", "--threshold-hosts", "two"])
    assert done.exit_code == 1
    assert "--threshold-hosts 'two': expected numbers of hosts" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_plan_survives_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for case in (chosen("sizes")[0], chosen("convergence")[0]):
        monkeypatch.setattr("sys.argv", ["worker", *case.plan.arguments()])
        assert Plan.parse() == case.plan
    assert chosen("sizes")[0].plan.block_of(1024) == 32
    assert chosen("sizes")[0].plan.block_of(MIB) == 1
    assert chosen("overhead")[0].plan.block_of(1024) == 128


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
    assert len(report.lines(found)) == 4


def test_what_falls_short_is_no_claim_kept() -> None:
    slow = sweep_of(chosen("sizes")[0], {1024: 0.9, 8 * MIB: 1.5}, second=0.4)
    assert not any(claim.ok for claim in report.claims([slow]))
    unequal = sweep_of(chosen("sizes")[1], {8 * MIB: 1.2})
    (of_sum,) = [claim for claim in report.claims([unequal]) if "sum" in claim.claim]
    assert (of_sum.value, of_sum.ok) == (pytest.approx(0.6), False)


def test_the_threshold_is_where_every_larger_size_is_split() -> None:
    rows = [
        {"bytes": size, "shares": {"a": share}} for size, share in ((1, 0.5), (2, 1.0), (4, 0.6), (8, 0.6))
    ]
    assert report.threshold(rows) == 4
    assert report.threshold(rows[:2]) is None


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


def trace_of(shares: list[float]) -> Found:
    case = chosen("convergence")[0]
    calls = [Call(place, 0.1, {"tcp1": share, "tcp0": 1 - share}, 0) for place, share in enumerate(shares)]
    return Found(case, (), calls, (39, 79))


def test_a_trace_says_after_how_many_calls_the_split_was_there() -> None:
    cold = [0.0, 1.0, 0.0, 1.0] + [0.5] * 36
    halved = [0.5] * 11 + [0.33] * 10 + [0.0] + [0.33] * 18  # one call tries another way
    found = trace_of(cold + halved + [0.33] * 30 + [0.5] * 10)
    phases = report.trace(found)["phases"]
    assert [phase["converged_after"] for phase in phases] == [4, 11, 30]
    assert [phase["what"] for phase in phases] == ["cold start", "tcp1 at 50 Mbit/s", "tcp1 at 100 Mbit/s"]
    assert [claim.ok for claim in report.claims([found])] == [True, True, False]


def test_overhead_is_over_the_best_rail_of_the_same_block() -> None:
    case = chosen("overhead")[0]
    rows = [
        Row(1024, "tcp0+tcp1", [1.04, 2.08, 4.16], [{"tcp0": 1.0}] * 3, 0),
        Row(1024, "tcp0", [1.0, 2.0, 4.0], [{"tcp0": 1.0}] * 3, 0),
        Row(1024, "tcp1", [2.0, 3.0, 5.0], [{"tcp1": 1.0}] * 3, 1),
    ]
    told = report.overhead(Found(case, rows))
    assert told["overhead"] == pytest.approx(0.04)
    assert (told["best_rail"], told["wrong"]) == ("tcp0", 1)


class LabOfRates:
    """A lab whose rates can be changed."""

    def __init__(self) -> None:
        self.rates: list[tuple[str, int]] = []

    def set_rate(self, plane: str, rate_bps: int) -> None:
        self.rates.append((plane, rate_bps))


def test_rates_change_when_all_ranks_have_told_of_the_call() -> None:
    lab = LabOfRates()
    gathered = _Gathered(chosen("convergence")[0], lab)  # type: ignore[arg-type]
    for place in range(50):
        for rank in range(4):
            message = {"event": "call", "rank": rank, "bytes": 8 * MIB, "place": place}
            gathered.take({**message, "seconds": rank, "shares": {"tcp0": 1.0}, "wrong": 1})
            assert bool(lab.rates) == (place > 39 or (place, rank) == (39, 3))
    assert lab.rates == [("tcp1", 50 * M)]
    found = gathered.found()
    assert found.changed_after == [39]
    assert (found.calls[0].seconds, found.wrong) == (1.5, 200)


def test_figures_are_drawn_and_json_is_json(tmp_path: Path) -> None:
    found = [sweep_of(case, {1024: 1.0, 8 * MIB: 1.9}) for case in chosen("sizes") + chosen("thresholds")]
    found.append(trace_of([0.5] * 120))
    drawn = plot.draw(found, tmp_path / "s.png")
    assert [path.name for path in drawn] == ["s-sizes.png", "s-thresholds.png", "s-convergence.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    told = json.loads(json.dumps(report.as_json(found)))
    assert told["ok"]
    assert {row["part"] for row in told["rows"]} == {"sizes", "thresholds", "convergence"}
