# SPDX-License-Identifier: Apache-2.0
"""The harness of benchmarks: interleaved repetitions, medians with intervals, tables, JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rich.console import Console

from railweave.benchmarks.harness import Benchmark, OnPhase, Part, Reading, Result, run
from railweave.experiments.errors import OptionError

TIMES_MS = {"a": [3.0, 1.0, 2.0], "b": [7.0, 7.0, 7.0]}


def benchmark(order: list[str]) -> Benchmark:
    """Return a benchmark with two parts, which record the order of their runs."""

    def part(name: str) -> Part:
        async def measure(_: Path, on_phase: OnPhase) -> AsyncIterator[Reading]:
            on_phase("now")
            value = TIMES_MS[name][order.count(name)]
            order.append(name)
            yield Reading("times", {"of": name}, {"time": (value, "ms")})
            if name == "b":
                yield Reading("times", {"of": name}, {"rate": (1e3 / value, "1/s")})

        return Part(measure, f"a core for {name}", [f"about {name}", "about both"])

    return Benchmark("model", {name: part(name) for name in TIMES_MS}, ("c: absent",))


async def measured(tmp_path: Path, phases: list[str], order: list[str]) -> Result:
    return await run(benchmark(order), 3, tmp_path / "logs", phases.append)


async def test_parts_take_turns_and_rows_have_the_median_of_all_repetitions(tmp_path: Path) -> None:
    phases: list[str] = []
    order: list[str] = []
    result = await measured(tmp_path, phases, order)
    assert order == ["a", "b"] * 3
    assert phases[1] == "b, repetition 1 of 3: now"
    rows = result.as_json()["rows"]
    assert rows[0] == {
        **{"table": "times", "of": "a", "name": "time", "value": 2.0, "unit": "ms"},
        **{"low": 1.0, "high": 3.0, "repetitions": 3},
    }
    assert [(row["name"], row["low"], row["high"]) for row in rows[1:]] == [
        ("time", 7.0, 7.0),
        ("rate", 1e3 / 7, 1e3 / 7),
    ]


async def test_a_table_has_a_line_for_each_set_of_parameters(tmp_path: Path) -> None:
    result = await measured(tmp_path, [], [])
    console = Console(width=80)
    with console.capture() as printed:
        console.print(*result.tables())
    lines = [line.split() for line in printed.get().splitlines() if line.strip()]
    assert lines[-2:] == [["a", "2", "±50%", "-"], ["b", "7", "143"]]
    notes = result.notes().splitlines()
    assert notes[:3] == ["# about a", "# about both", "# about b"]
    assert "# not measured: c: absent" in notes
    assert "# limit of b: a core for b" in notes


def test_a_part_can_be_measured_alone() -> None:
    assert list(benchmark([]).only(["b"]).parts) == ["b"]
    with pytest.raises(OptionError, match="--parts 'x': expected one of a, b; correct the name"):
        benchmark([]).only(["a", "x"])
    with pytest.raises(OptionError, match="--parts '': expected one of a, b"):
        benchmark([]).only([])
