# SPDX-License-Identifier: Apache-2.0
"""The panels of all figures, drawn from the records of a cost model."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import model_records
import pytest

from railweave.experiments.claims import NOT_MEASURED, NOT_REPRODUCED, judge
from railweave.experiments.figures import Figure, drawing, figures
from railweave.experiments.measures import Runs
from railweave.experiments.records import CPU
from railweave.experiments.reproduce import Options


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: figure.name)
def test_all_claims_of_a_full_figure_are_judged_and_no_curve_is_cut(figure: Figure) -> None:
    runs = Runs(model_records.of_plan(Options([figure], Path())))
    for axes in figure.draw(runs).axes:
        low, high = axes.get_ylim()
        values = [value for line in axes.lines for value in line.get_ydata()]
        heights = [bar.get_height() for bar in axes.patches if hasattr(bar, "get_height")]
        assert all(low <= value <= high for value in [*values, *heights] if not math.isnan(value))
    verdicts = [judge(claim, runs) for claim in figure.claims]
    assert NOT_MEASURED not in {verdict.verdict for verdict in verdicts}
    assert all(verdict.reason for verdict in verdicts if verdict.verdict == NOT_REPRODUCED)


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("N3", {}, ["Bands: 95 % interval"]),
        ("N4", {"bottleneck": CPU}, ["Bands: 95 % interval", "Hollow marks: the CPU was the bottleneck"]),
        ("N5", {}, ["Whiskers: up to the 99th percentile"]),
        ("R3", {}, ["Bands: from the slowest job to the fastest"]),
        ("N6", {}, []),
    ],
)
def test_marks_are_explained_below_the_panels(name: str, fields: dict[str, Any], words: list[str]) -> None:
    (figure,) = figures([name])
    records = model_records.of_plan(Options([figure], Path(), quick=True))
    drawn = figure.draw(Runs([replace(record, **fields) for record in records]))
    text = " ".join(drawn.get_supxlabel().split())
    assert [word for word in ("Bands", "Hollow", "Whiskers") if word in text] == [
        word.split()[0].rstrip(":") for word in words
    ]
    assert all(word in text for word in words)


def test_each_rail_has_a_colour_that_nothing_else_has() -> None:
    rails = ("ina", "tcp", "rdma", "netreduce", "tcp1", "rdma1")
    algorithms = ("atp", "switchml", "thc", "omnireduce", "ring")
    others = (
        *algorithms,
        "ina+tcp",
        "tcp+tcp",
        "gloo",
        "mptcp",
        "openmpi",
        "ps",
        "hierarchical",
        "4 hosts",
    )
    colours = [drawing.colour(rail) for rail in rails]
    assert len(set(colours)) == len(rails)
    assert set(colours).isdisjoint(drawing.colour(other) for other in others)
    assert len({drawing.colour(name) for name in algorithms}) == len(algorithms)
    assert drawing.colour("tcp0") == drawing.colour("tcp")
